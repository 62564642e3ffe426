/* The items of the pack at hand, kept until it is stored: when the session is lost it is done over.
 * Their number is bounded by the caller. */
#include "core/base/alloc.h"
#include "postgres/backup_pack_internal.h"

#include <stdio.h>
#include <string.h>

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

static bool keep_text(struct sl_pg_packer *p, const char *text, uint32_t *ret_at)
{
    size_t bytes = strlen(text) + 1;
    if (p->text_used + bytes > p->text_room) {
        size_t room = p->text_room * 2 + bytes + 4096;
        char *bigger = sl_realloc(p->text, room);
        if (!bigger)
            return false;
        p->text = bigger;
        p->text_room = room;
    }
    memcpy(p->text + p->text_used, text, bytes);
    *ret_at = (uint32_t)p->text_used;
    p->text_used += bytes;
    return true;
}

int sl_pg_packer_keep(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err)
{
    if (p->kept_count == p->kept_room) {
        size_t room = p->kept_room * 2 + 64;
        struct sl_pg_kept *bigger = sl_realloc(p->kept, room * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        p->kept = bigger;
        p->kept_room = room;
    }
    struct sl_pg_kept *k = &p->kept[p->kept_count];
    *k = (struct sl_pg_kept){.size = item->size,
                             .offset = item->offset,
                             .length = item->length,
                             .mtime_ns = item->mtime_ns,
                             .mode = item->mode,
                             .uid = item->uid,
                             .gid = item->gid,
                             .kind = (uint8_t)item->kind,
                             .whole = item->whole};
    if (!keep_text(p, item->path, &k->path_at) || !keep_text(p, item->link, &k->link_at))
        return no_memory(err);
    p->kept_count++;
    return 0;
}

void sl_pg_packer_recall(const struct sl_pg_packer *p, size_t index, struct sl_pg_item *item)
{
    const struct sl_pg_kept *k = &p->kept[index];
    item->kind = k->kind;
    item->size = k->size;
    item->offset = k->offset;
    item->length = k->length;
    item->mtime_ns = k->mtime_ns;
    item->mode = k->mode;
    item->uid = k->uid;
    item->gid = k->gid;
    item->whole = k->whole;
    snprintf(item->path, sizeof item->path, "%s", p->text + k->path_at);
    snprintf(item->link, sizeof item->link, "%s", p->text + k->link_at);
}
