/* Page checksums of relation files, judged while their bytes pass by.
 */
#ifndef SL_POSTGRES_PAGE_CHECK_H
#define SL_POSTGRES_PAGE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PG_PAGE_BYTES_MAX 32768u /* BLCKSZ is 1 to 32 KiB */

/* The checksum of a page (checksum_impl.h: pg_checksum_page), its own field left out. `block` is
 * the page's number in its relation, `bytes` a multiple of 128. */
uint16_t sl_pg_page_checksum(const uint8_t *page, uint32_t bytes, uint32_t block);

/* Can the page be right? A page that was written at or after `start_lsn` is not judged: it may
 * have been read while it was written, and WAL holds all of it. Nor is a new one, all zero. */
bool sl_pg_page_good(const uint8_t *page, uint32_t bytes, uint32_t block, uint64_t start_lsn);

/* Is it a file of pages ("base/5/16384.1", "global/1262_fsm")? Then its first block's number, for
 * segments of `segment_blocks`. */
bool sl_pg_page_file(const char *path, uint32_t segment_blocks, uint32_t *ret_first_block);

/* A passage over one file, in pieces of any size. What looks bad is read again from `fd` a few
 * times: the server may have been writing it. */
struct sl_pg_page_check {
    uint32_t page_bytes; /* 0: nothing is judged */
    uint32_t first_block;
    uint64_t start_lsn, offset; /* of the file, of the next byte */
    int fd;                     /* borrowed */
    void (*bad)(void *arg, const char *path, uint32_t block);
    void *arg;
    const char *path; /* borrowed, for `bad` */
    uint64_t judged;  /* pages seen */
    uint32_t held_bytes;
    uint8_t held[SL_PG_PAGE_BYTES_MAX]; /* a page's beginning, when a piece ended in it */
};
/* `offset` (a multiple of page_bytes, else nothing is judged) is where the passage begins. */
void sl_pg_page_check_begin(struct sl_pg_page_check *check, uint32_t page_bytes,
                            uint32_t first_block, uint64_t start_lsn, int fd, uint64_t offset);
/* Passes over whole pages that were not read. */
void sl_pg_page_check_skip(struct sl_pg_page_check *check, size_t count);
void sl_pg_page_check_feed(struct sl_pg_page_check *check, const uint8_t *bytes, size_t count);

#endif
