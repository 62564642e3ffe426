/* Page checksums. The arithmetic is that of PostgreSQL's checksum_impl.h (32 FNV-1a sums side by
 * side); what is judged and what is not follows basebackup.c: verify_page_checksum. A file's last
 * page may be cut short by growth, and is left alone then. */
#include "postgres/page_check.h"

#include "core/object/object.h"
#include "core/wire/cursor.h"
#include "postgres/cluster_rules.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LANES         32
#define FNV_PRIME     16777619u
#define READ_AGAIN    5
#define READ_AGAIN_MS 2

static const uint32_t offsets[LANES] = {
    0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2, 0x83E13D2C,
    0xF8D4474F, 0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C, 0xF718902A, 0x0B1C9CDB,
    0xE58F764B, 0x187636BC, 0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979, 0xCCA6C0B2, 0x304A0979, 0x85AA43D4,
    0x783125BB, 0x6CA8EAA2, 0xE407EAC6, 0x4B5CFC3E, 0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756};

static inline void mix(uint32_t sums[LANES], const uint32_t row[LANES])
{
    for (int i = 0; i < LANES; i++) {
        uint32_t mixed = sums[i] ^ row[i];
        sums[i] = mixed * FNV_PRIME ^ (mixed >> 17);
    }
}

/* Every byte of a backup goes through here: worth the processor's wide multiplications. Pages are
 * in the server's byte order, which is this host's. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&                 \
    !defined(__SANITIZE_ADDRESS__) /* what chooses the clone would run before they are ready */
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
static uint32_t
sum_rows(const uint8_t *page, uint32_t bytes)
{
    uint32_t sums[LANES], row[LANES], result = 0;
    memcpy(sums, offsets, sizeof sums);
    memcpy(row, page, sizeof row);
    memset((uint8_t *)row + 8, 0, 2); /* pd_checksum */
    mix(sums, row);
    for (uint32_t at = sizeof row; at < bytes; at += sizeof row) {
        memcpy(row, page + at, sizeof row);
        mix(sums, row);
    }
    memset(row, 0, sizeof row);
    mix(sums, row);
    mix(sums, row);
    for (int i = 0; i < LANES; i++)
        result ^= sums[i];
    return result;
}

uint16_t sl_pg_page_checksum(const uint8_t *page, uint32_t bytes, uint32_t block)
{
    return (uint16_t)((sum_rows(page, bytes) ^ block) % 65535 + 1);
}

bool sl_pg_page_good(const uint8_t *page, uint32_t bytes, uint32_t block, uint64_t start_lsn)
{
    struct sl_reader r = sl_reader_on(page, 16);
    uint64_t lsn = (uint64_t)sl_read_u32(&r) << 32;
    lsn |= sl_read_u32(&r);
    uint16_t stored = sl_read_u16(&r);
    sl_read_u16(&r); /* pd_flags */
    sl_read_u16(&r); /* pd_lower */
    uint16_t upper = sl_read_u16(&r);
    if (!upper) /* PageIsNew() */
        return sl_bytes_are_zero(page, bytes) || lsn >= start_lsn;
    return lsn >= start_lsn || sl_pg_page_checksum(page, bytes, block) == stored;
}

bool sl_pg_page_file(const char *path, uint32_t segment_blocks, uint32_t *ret_first_block)
{
    const char *name = strrchr(path, '/');
    bool init;
    if (!name || strlen(path) > 255)
        return false;
    char folder[256];
    memcpy(folder, path, (size_t)(name - path));
    folder[name++ - path] = '\0';
    if ((strcmp(folder, "global") != 0 && !sl_pg_is_relation_folder(folder)) ||
        !sl_pg_relation_digits(name, &init))
        return false;
    const char *dot = strchr(name, '.');
    unsigned long segment = dot ? strtoul(dot + 1, NULL, 10) : 0;
    if (segment && segment > UINT32_MAX / segment_blocks)
        return false;
    *ret_first_block = (uint32_t)segment * segment_blocks;
    return true;
}

void sl_pg_page_check_begin(struct sl_pg_page_check *check, uint32_t page_bytes,
                            uint32_t first_block, uint64_t start_lsn, int fd, uint64_t offset)
{
    bool possible = page_bytes >= 1024 && page_bytes <= SL_PG_PAGE_BYTES_MAX &&
                    !(page_bytes & (page_bytes - 1)) && offset % page_bytes == 0;
    check->page_bytes = possible ? page_bytes : 0;
    check->first_block = first_block;
    check->start_lsn = start_lsn;
    check->offset = offset;
    check->fd = fd;
    check->judged = 0;
    check->held_bytes = 0;
}

/* A page that was being written is whole a moment later; one that was cut off is none. */
static bool good_after_all(struct sl_pg_page_check *check, uint32_t block)
{
    uint8_t again[SL_PG_PAGE_BYTES_MAX];
    for (int i = 0; i < READ_AGAIN; i++) {
        ssize_t n = pread(check->fd, again, check->page_bytes, (off_t)check->offset);
        if (n >= 0 && (n < (ssize_t)check->page_bytes ||
                       sl_pg_page_good(again, check->page_bytes, block, check->start_lsn)))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = READ_AGAIN_MS * 1000000L}, NULL);
    }
    return false;
}

static void judge(struct sl_pg_page_check *check, const uint8_t *page)
{
    uint32_t block = check->first_block + (uint32_t)(check->offset / check->page_bytes);
    if (!sl_pg_page_good(page, check->page_bytes, block, check->start_lsn) &&
        !good_after_all(check, block))
        check->bad(check->arg, check->path, block);
    check->offset += check->page_bytes;
    check->judged++;
}

void sl_pg_page_check_skip(struct sl_pg_page_check *check, size_t count)
{
    check->offset += count;
}

void sl_pg_page_check_feed(struct sl_pg_page_check *check, const uint8_t *bytes, size_t count)
{
    if (!check->page_bytes)
        return;
    while (count) {
        if (!check->held_bytes && count >= check->page_bytes) {
            judge(check, bytes);
            bytes += check->page_bytes;
            count -= check->page_bytes;
            continue;
        }
        size_t room = check->page_bytes - check->held_bytes, step = count < room ? count : room;
        memcpy(check->held + check->held_bytes, bytes, step);
        check->held_bytes += (uint32_t)step;
        bytes += step;
        count -= step;
        if (check->held_bytes == check->page_bytes) {
            judge(check, check->held);
            check->held_bytes = 0;
        }
    }
}
