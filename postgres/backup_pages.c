/* Page checksums of a backup: which files have pages, what is remembered of bad ones, and what the
 * backup ends with. The backup is completed in any case: it may be the last copy there is. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/backup_internal.h"

#include <string.h>

#define LISTED_MAX 1000

int sl_pg_backup_pages_init(struct sl_pg_backup *b, struct sl_err *err)
{
    const char *policy = sl_option_string(b->invocation->options, "page-check");
    if (!b->control.data_checksum_version || !strcmp(policy, "off"))
        return 0;
    b->bad_pages = json_array();
    return b->bad_pages ? 0 : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

/* A pack that is done over meets its bad pages again. */
static bool is_listed(const json_t *list, const char *path, uint32_t block)
{
    size_t i;
    const json_t *one;
    json_array_foreach(
        list, i,
        one) if (json_integer_value(json_object_get(one, "block")) == block &&
                 !strcmp(json_string_value(json_object_get(one, "file")), path)) return true;
    return false;
}

static void on_bad(void *arg, const char *path, uint32_t block)
{
    struct sl_pg_backup *b = arg;
    pthread_mutex_lock(&b->lock);
    bool known = is_listed(b->bad_pages, path, block);
    if (!known && b->bad_page_count++ < LISTED_MAX)
        json_array_append_new(b->bad_pages,
                              json_pack("{s:s,s:I}", "file", path, "block", (json_int_t)block));
    bool named = !known && b->bad_page_count <= LISTED_MAX;
    pthread_mutex_unlock(&b->lock);
    if (named)
        sl_log(SL_LOG_WARN, "postgres", "wrong page checksum: file \"%s\", block %u", path, block);
}

void sl_pg_backup_pages_begin(struct sl_pg_backup *b, struct sl_pg_page_check *check,
                              const struct sl_pg_item *item, int fd)
{
    uint32_t first = 0;
    bool judged = b->bad_pages && fd >= 0 &&
                  sl_pg_page_file(item->path, b->control.relation_segment_blocks, &first);
    check->bad = on_bad;
    check->arg = b;
    check->path = item->path;
    sl_pg_page_check_begin(check, judged ? b->control.block_bytes : 0, first, b->start_lsn, fd,
                           item->offset);
}

void sl_pg_backup_pages_end(struct sl_pg_backup *b, struct sl_pg_page_check *check)
{
    atomic_fetch_add(&b->pages, check->judged);
    check->page_bytes = 0;
}

int sl_pg_backup_pages_verdict(const struct sl_pg_backup *b, struct sl_err *err)
{
    if (!b->bad_page_count ||
        strcmp(sl_option_string(b->invocation->options, "page-check"), "error"))
        return 0;
    const json_t *first = json_array_get(b->bad_pages, 0);
    sl_err_set(err, SL_ERR_CHECKSUM,
               "backup %s is complete and can be restored, but %llu pages in it have a wrong "
               "checksum: the first is block %lld of \"%s\"",
               b->label, (unsigned long long)b->bad_page_count,
               (long long)json_integer_value(json_object_get(first, "block")),
               json_string_value(json_object_get(first, "file")));
    sl_err_hint(err, "the server's data is damaged: keep older backups, see \"sluice info\" and "
                     "pg_amcheck; --page-check=warn ends with success");
    return SL_ERR_CHECKSUM;
}
