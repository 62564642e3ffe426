/* Growing objects, written: opened at the end of what is whole, appended to, synced, sealed. How a
 * journal is read is in grow_read.c, what it looks like in core/object/journal.h.
 *
 * The order of things: a record is written, and counts as durable (to the client, and in the
 * records after it) only when a sync has covered it. Its head and content may reach the disk in any
 * order, also without each other; both have digests. Sealing publishes as for every object, so the
 * content is durable under its name before the journal goes; a crash between the two leaves both,
 * and sealing again finds the object identical.
 */
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/repo/grow_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TRIES 8 /* others that make or seal it at the same time */

struct sl_growing {
    struct sl_repo *repo;
    struct sl_file *file;
    struct sl_id journal;
    uint64_t content, durable; /* bytes of content: written, synced */
    uint64_t end;              /* of the file */
    bool marked;               /* the last record has the mark, or there is none */
    int failed;
    char name[SL_FULL_NAME_MAX], creator[64];
    char journal_name[SL_STORE_NAME_MAX];
};

/* --- making one ------------------------------------------------------------------------------- */

static int write_head(struct sl_growing *g, struct sl_file *file, struct sl_err *err)
{
    struct sl_journal_head head = {.repository = g->repo->uuid, .created_ns = sl_wall_ns()};
    uint8_t *bytes = sl_pages_alloc(SL_JOURNAL_HEAD_BYTES);
    if (!bytes)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a journal");
    int rc = 0;
    if (getrandom(head.journal.bytes, sizeof head.journal, 0) != (ssize_t)sizeof head.journal)
        rc = sl_err_set(err, SL_ERR_CRYPTO, "no random bytes");
    memcpy(head.creator, g->creator, sizeof head.creator);
    memcpy(head.name, g->name, sizeof head.name);
    sl_journal_head_encode(&head, bytes);
    if (!rc)
        rc = g->repo->store->ops->write(file, bytes, SL_JOURNAL_HEAD_BYTES, 0, err);
    sl_pages_free(bytes, SL_JOURNAL_HEAD_BYTES);
    return rc;
}

static int make(struct sl_growing *g, struct sl_err *err)
{
    struct sl_store *store = g->repo->store;
    struct sl_publish item = {.name = g->journal_name};
    struct sl_trailer sealed;
    int rc = sl_object_stat(g->repo, g->name, &sealed, err);
    if (rc == 0) {
        sl_err_set(err, SL_ERR_EXISTS, "\"%s\" has ended: it was sealed with %" PRIu64 " bytes",
                   g->name, sealed.length);
        return SL_ERR_EXISTS;
    }
    if (rc != SL_ERR_NOT_FOUND)
        return rc;
    rc = sl_repo_settle(g->repo, err);
    if (!rc)
        rc = store->ops->create(store, g->journal_name, 0, &item.file, err);
    if (rc)
        return rc;
    rc = write_head(g, item.file, err);
    if (!rc) {
        rc = store->ops->publish(store, &item, 1); /* TAKEN: somebody else was faster, it serves */
        if (rc)
            sl_err_copy(err, &item.err);
    }
    store->ops->close(item.file);
    return rc;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* The locked file, made if there is none. */
static int obtain(struct sl_growing *g, struct sl_err *err)
{
    struct sl_store *store = g->repo->store;
    uint64_t bytes;
    int rc = SL_ERR_NOT_FOUND;
    for (int i = 0; i < TRIES && rc == SL_ERR_NOT_FOUND; i++) {
        rc = store->ops->grow(store, g->journal_name, &g->file, &bytes, err);
        if (rc != SL_ERR_NOT_FOUND)
            return rc;
        rc = make(g, err);
        if (rc)
            return rc;
        rc = SL_ERR_NOT_FOUND;
    }
    return sl_err_set(err, SL_ERR_BUSY, "\"%s\" is made and removed by others", g->journal_name);
}

/* What is behind the last mark goes; what stays is made durable, whoever wrote it. */
static int take_over(struct sl_growing *g, const struct sl_journal_scan *scan, struct sl_err *err)
{
    struct sl_store *store = g->repo->store;
    const struct sl_journal_extent *extent = &scan->extent;
    g->journal = scan->head.journal;
    g->content = g->durable = extent->mark_content;
    g->end = extent->mark_end;
    g->marked = true;
    if (extent->content > extent->mark_content)
        sl_log(SL_LOG_DETAIL, "repo", "\"%s\": %" PRIu64 " bytes behind the last mark are dropped",
               g->journal_name, extent->content - extent->mark_content);
    int rc = store->ops->truncate(g->file, g->end, err);
    if (!rc)
        rc = store->ops->grow_sync(g->file, err);
    return rc ? rc : store->ops->settle(store, g->journal_name, err);
}

static int init(struct sl_growing *g, struct sl_repo *repo, const char *full_name,
                const char *creator, struct sl_err *err)
{
    g->repo = repo;
    int length =
        snprintf(g->journal_name, sizeof g->journal_name, "%s%s", full_name, SL_JOURNAL_SUFFIX);
    if (!(repo->store->caps & SL_STORE_CAN_GROW))
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "%s has no growing objects", repo->store->label);
    if (length < 0 || (size_t)length >= sizeof g->journal_name)
        return sl_err_set(err, SL_ERR_USAGE, "name is too long");
    if (sl_journal_name(full_name))
        return sl_err_set(err, SL_ERR_USAGE, "name \"%s\" is that of a journal", full_name);
    snprintf(g->name, sizeof g->name, "%s", full_name);
    snprintf(g->creator, sizeof g->creator, "%s", creator ? creator : "local");
    return sl_store_name_check(g->journal_name, false, err);
}

int sl_growing_open(struct sl_repo *repo, const char *full_name, const char *creator,
                    uint64_t known, struct sl_growing **ret_growing, struct sl_err *err)
{
    struct sl_growing *g = sl_calloc(1, sizeof *g);
    if (!g)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = init(g, repo, full_name, creator, err);
    if (!rc)
        rc = obtain(g, err);
    struct sl_journal_scan scan = {.repo = repo,
                                   .file = g->file,
                                   .journal_name = g->journal_name,
                                   .known = known,
                                   .limit = UINT64_MAX};
    if (!rc)
        rc = sl_journal_scan(&scan, err);
    if (!rc)
        rc = take_over(g, &scan, err);
    if (rc) {
        sl_growing_close(g);
        return rc;
    }
    *ret_growing = g;
    return 0;
}

void sl_growing_close(struct sl_growing *g)
{
    if (!g)
        return;
    g->repo->store->ops->close(g->file);
    sl_free(g);
}

uint64_t sl_growing_length(const struct sl_growing *g)
{
    return g->content;
}

uint64_t sl_growing_durable(const struct sl_growing *g)
{
    return g->durable;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int refuse_failed(const struct sl_growing *g, struct sl_err *err)
{
    return g->failed
               ? sl_err_set(err, g->failed, "the journal of \"%s\" has failed before", g->name)
               : 0;
}

int sl_growing_append(struct sl_growing *g, const void *bytes, uint32_t count, uint8_t flags,
                      const struct sl_id *digest, struct sl_err *err)
{
    const struct sl_store_ops *ops = g->repo->store->ops;
    struct sl_journal_record record = {.bytes = count,
                                       .flags = flags,
                                       .offset = g->content,
                                       .durable = g->durable,
                                       .digest = *digest};
    uint8_t head[SL_JOURNAL_RECORD_BYTES];
    int rc = refuse_failed(g, err);
    if (rc)
        return rc;
    if (g->content + count > (uint64_t)SL_OBJECT_BLOCKS_MAX * SL_BLOCK_BYTES)
        return sl_err_set(err, SL_ERR_LIMIT, "\"%s\" is longer than an object can be (1 TiB)",
                          g->name);
    uint64_t room = sl_journal_record_room(&record) - SL_JOURNAL_RECORD_BYTES;
    sl_journal_record_encode(&record, g->repo->digest_seed, &g->journal, head);
    rc = ops->write(g->file, head, sizeof head, g->end, err);
    if (!rc)
        rc = ops->write(g->file, bytes, (size_t)room, g->end + sizeof head, err);
    g->failed = rc;
    if (rc)
        return rc;
    g->content += count;
    g->end += sizeof head + room;
    g->marked = flags & SL_JOURNAL_MARK;
    return 0;
}

int sl_growing_sync(struct sl_growing *g, struct sl_err *err)
{
    int rc = refuse_failed(g, err);
    if (rc || g->durable == g->content)
        return rc;
    g->failed = rc = g->repo->store->ops->grow_sync(g->file, err);
    if (!rc)
        g->durable = g->content;
    return rc;
}

/* --- sealing ---------------------------------------------------------------------------------- */

static int check_end(const struct sl_growing *g, uint64_t length, struct sl_err *err)
{
    if (length == g->content && length == g->durable && g->marked)
        return 0;
    return sl_err_set(
        err, SL_ERR_PROTOCOL,
        "\"%s\" cannot end at byte %" PRIu64 ": it has %" PRIu64 ", %" PRIu64 " of them durable%s",
        g->name, length, g->content, g->durable, g->marked ? "" : ", and does not end at a mark");
}

int sl_growing_seal(struct sl_growing *g, uint64_t length, enum sl_codec codec, int level,
                    enum sl_outcome *ret_outcome, struct sl_id *ret_digest, struct sl_err *err)
{
    struct sl_repo *repo = g->repo;
    struct sl_repo_publish item = {0};
    int rc = refuse_failed(g, err);
    if (!rc)
        rc = check_end(g, length, err);
    if (!rc)
        rc = sl_journal_draft(repo, g->file, g->journal_name, g->name, g->creator, length, codec,
                              level, &item.draft, err);
    if (rc)
        return rc;
    sl_repo_publish(repo, &item, 1);
    sl_draft_free(item.draft);
    if (item.code)
        return sl_err_copy(err, &item.err);
    (void)sl_fault("repo.grow_sealed"); /* a place to die at */
    struct sl_err scrap;
    if (repo->store->ops->remove(repo->store, g->journal_name, &scrap) != 0)
        sl_log_err(SL_LOG_WARN, "repo", &scrap, "\"%s\" was sealed, its journal stays", g->name);
    g->failed = SL_ERR_CLOSED;
    *ret_outcome = item.outcome;
    *ret_digest = item.digest;
    return 0;
}
