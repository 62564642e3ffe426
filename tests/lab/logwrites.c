/* Replays a device that dm-log-writes recorded, up to a power cut.
 *
 * The kernel's log (Documentation/admin-guide/device-mapper/log-writes.rst; drivers/md/
 * dm-log-writes.c): a super block in the first sector, then entries, each one sector of header
 * (little-endian u64 sector, nr_sectors, flags, data_len), a mark's text behind the header in that
 * sector, otherwise nr_sectors of data after it. A write is logged when the flush that covers it
 * completes (FUA writes at once), before the entry of that flush; a mark is logged where it falls.
 *
 * A power cut at entry P therefore leaves: everything up to the last flush before P; FUA writes
 * before P; and of the other writes between that flush and the next one any subset, chosen here
 * by a seeded generator. What was acknowledged is what marks before P say.
 *
 *   logwrites LOG info                        entries, flushes, marks, bytes
 *   logwrites LOG next-mark P                 index of the first mark from P on (or -1)
 *   logwrites LOG advance DEVICE FROM P       all writes from entry FROM to the last flush before
 * P; prints the entry after that, the next FROM logwrites LOG cut DEVICE FROM P SEED MARKS  what a
 * cut at P leaves of entries from FROM on; the marks before P go to the file MARKS, one a line
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_MAGIC    0x6a736677736872ull
#define FLAG_FLUSH   1u
#define FLAG_FUA     2u
#define FLAG_DISCARD 4u
#define FLAG_MARK    8u

struct entry {
    uint64_t sector, sectors, flags, mark_bytes;
    off_t at; /* of its header in the log */
};

static int log_fd;
static uint64_t entry_count, sector_bytes;
static struct entry *entries;

static void fail(const char *what)
{
    fprintf(stderr, "logwrites: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void read_at(void *to, size_t count, off_t at)
{
    char *p = to;
    while (count) {
        ssize_t n = pread(log_fd, p, count, at);
        if (n <= 0)
            fail("could not read the log");
        p += n;
        at += n;
        count -= (size_t)n;
    }
}

static void load(const char *path)
{
    log_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (log_fd < 0)
        fail(path);
    uint64_t head[4];
    read_at(head, sizeof head, 0);
    if (le64toh(head[0]) != LOG_MAGIC) {
        fprintf(stderr, "logwrites: %s is no log of dm-log-writes\n", path);
        exit(2);
    }
    entry_count = le64toh(head[2]);
    sector_bytes = le32toh((uint32_t)head[3]);
    entries = calloc(entry_count + 1, sizeof *entries);
    if (!entries || !sector_bytes)
        fail("bad log");
    off_t at = (off_t)sector_bytes;
    for (uint64_t i = 0; i < entry_count; i++) {
        read_at(head, sizeof head, at);
        entries[i] = (struct entry){le64toh(head[0]), le64toh(head[1]), le64toh(head[2]),
                                    le64toh(head[3]), at};
        at += (off_t)sector_bytes;
        if (!(entries[i].flags & FLAG_DISCARD))
            at += (off_t)(entries[i].sectors * sector_bytes);
    }
}

static void apply(int device, const struct entry *e)
{
    if (!e->sectors || e->flags & (FLAG_DISCARD | FLAG_MARK))
        return;
    size_t bytes = e->sectors * sector_bytes;
    char *data = malloc(bytes);
    if (!data)
        fail("memory");
    read_at(data, bytes, e->at + (off_t)sector_bytes);
    if (pwrite(device, data, bytes, (off_t)(e->sector * sector_bytes)) != (ssize_t)bytes)
        fail("could not write the device");
    free(data);
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static int64_t flush_before(uint64_t p)
{
    for (int64_t i = (int64_t)p - 1; i >= 0; i--)
        if (entries[i].flags & FLAG_FLUSH)
            return i;
    return -1;
}

static int64_t next_mark(uint64_t p)
{
    for (uint64_t i = p; i < entry_count; i++)
        if (entries[i].flags & FLAG_MARK)
            return (int64_t)i;
    return -1;
}

static void cut(int device, uint64_t from, uint64_t p, uint64_t seed)
{
    int64_t flush = flush_before(p);
    uint64_t i = from, kept = 0, dropped = 0;
    for (; (int64_t)i <= flush; i++)
        apply(device, &entries[i]);
    for (; i < entry_count; i++) {
        if (entries[i].flags & FLAG_FLUSH && i >= p)
            break;
        bool keep = entries[i].flags & FLAG_FUA ? i < p : next_random(&seed) & 1;
        if (entries[i].flags & FLAG_MARK || !entries[i].sectors)
            continue;
        if (keep)
            apply(device, &entries[i]);
        kept += keep;
        dropped += !keep;
    }
    printf("cut at %" PRIu64 ": flush %" PRId64 ", later writes kept %" PRIu64 ", dropped %" PRIu64
           "\n",
           p, flush, kept, dropped);
}

static void write_marks(uint64_t p, const char *path)
{
    FILE *to = fopen(path, "we");
    if (!to)
        fail(path);
    for (uint64_t i = 0; i < p && i < entry_count; i++) {
        if (!(entries[i].flags & FLAG_MARK) || entries[i].mark_bytes + 32 > sector_bytes)
            continue;
        char text[4096] = "";
        size_t bytes =
            entries[i].mark_bytes < sizeof text ? entries[i].mark_bytes : sizeof text - 1;
        read_at(text, bytes, entries[i].at + 32);
        text[bytes] = '\0';
        if (strcmp(text, "dm-log-writes-end") != 0) /* its own, when it is removed */
            fprintf(to, "%s\n", text);
    }
    if (fclose(to))
        fail(path);
}

static void print_info(void)
{
    uint64_t flushes = 0, marks = 0, bytes = 0, first_mark = entry_count;
    for (uint64_t i = 0; i < entry_count; i++) {
        flushes += !!(entries[i].flags & FLAG_FLUSH);
        if (entries[i].flags & FLAG_MARK && first_mark == entry_count)
            first_mark = i;
        marks += !!(entries[i].flags & FLAG_MARK);
        bytes += entries[i].sectors * sector_bytes;
    }
    printf("entries=%" PRIu64 " flushes=%" PRIu64 " marks=%" PRIu64 " bytes=%" PRIu64
           " first_mark=%" PRIu64 "\n",
           entry_count, flushes, marks, bytes, first_mark);
}

static int open_device(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        fail(path);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: logwrites LOG info|next-mark|advance|cut …\n");
        return 2;
    }
    load(argv[1]);
    const char *verb = argv[2];
    if (!strcmp(verb, "info") && argc == 3) {
        print_info();
    } else if (!strcmp(verb, "next-mark") && argc == 4) {
        printf("%" PRId64 "\n", next_mark(strtoull(argv[3], NULL, 10)));
    } else if (!strcmp(verb, "advance") && argc == 6) {
        int device = open_device(argv[3]);
        uint64_t from = strtoull(argv[4], NULL, 10);
        int64_t flush = flush_before(strtoull(argv[5], NULL, 10));
        for (; (int64_t)from <= flush; from++)
            apply(device, &entries[from]);
        if (fsync(device) || close(device))
            fail(argv[3]);
        printf("%" PRIu64 "\n", from);
    } else if (!strcmp(verb, "cut") && argc == 8) {
        int device = open_device(argv[3]);
        cut(device, strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10),
            strtoull(argv[6], NULL, 10));
        write_marks(strtoull(argv[5], NULL, 10), argv[7]);
        if (fsync(device) || close(device))
            fail(argv[3]);
    } else {
        fprintf(stderr, "logwrites: bad arguments\n");
        return 2;
    }
    return 0;
}
