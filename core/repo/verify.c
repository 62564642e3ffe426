/* Verify: a walk over a repository, or a part of it, that reads every byte. It changes nothing and
 * repairs nothing; what it finds it reports by name, and goes on. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/repo/grow.h"
#include "core/repo/repo_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct walk {
    struct sl_repo *repo;
    struct sl_repo_verify *verify;
    const char *scope;
    void *buffer;
    uint64_t orphans; /* packs of backups without a manifest */
    struct sl_err *err;
};

/* One folder of the walk. */
struct level {
    struct walk *walk;
    const char *folder;
    uint64_t packs;
    bool has_manifest;
};

static void report(void *arg, const char *name, int code, const char *text)
{
    struct walk *walk = arg;
    walk->verify->damaged++;
    if (walk->verify->damage)
        walk->verify->damage(walk->verify->arg, name, code, text);
}

static int step(struct walk *walk, struct sl_err *err)
{
    struct sl_repo_verify *v = walk->verify;
    int rc = v->step ? v->step(v->arg, v->objects, v->bytes, v->damaged) : 0;
    return rc ? sl_err_set(err, rc, "the check was ended by its user") : 0;
}

/* --- one object ------------------------------------------------------------------------------ */

struct reading {
    struct walk *walk;
    struct sl_backup_check *check;
    int ended; /* what step() or the lack of memory ended the walk with */
};

static int on_block(void *arg, uint64_t offset, const void *bytes, size_t count, struct sl_err *err)
{
    struct reading *reading = arg;
    struct walk *walk = reading->walk;
    walk->verify->bytes += sl_align_up(count);
    reading->ended = sl_backup_check_feed(reading->check, offset, bytes, count, err);
    if (!reading->ended)
        reading->ended = step(walk, err);
    return reading->ended;
}

/* Why the object is damaged, without what it is: read.c puts the object's name before the reason,
 * and whoever hears of the damage is told the name beside it. */
static const char *reason_of(const struct walk *walk, const char *name, const char *msg)
{
    char prefix[SL_ERR_MSG_BYTES];
    int length =
        snprintf(prefix, sizeof prefix, "object \"%s\" in %s: ", name, walk->repo->store->label);
    bool named =
        length > 0 && (size_t)length < sizeof prefix && !strncmp(msg, prefix, (size_t)length);
    return named ? msg + length : msg;
}

/* `*ret_ended` tells the end of the walk from damage. */
static int check_object(struct walk *walk, const char *name, int *ret_ended, struct sl_err *err)
{
    struct sl_object *object;
    struct reading reading = {.walk = walk};
    if (sl_journal_name(name))
        return sl_growing_check(walk->repo, name, err);
    int rc = sl_object_open(walk->repo, name, &object, err);
    if (rc)
        return rc;
    rc = sl_backup_check_new(object, report, walk, walk->scope, &reading.check, err);
    if (rc == 0)
        rc = sl_object_check(object, walk->buffer, on_block, &reading, err);
    if (rc == 0)
        rc = sl_backup_check_finish(reading.check, err);
    sl_backup_check_free(reading.check);
    sl_object_close(object);
    *ret_ended = reading.ended;
    return rc;
}

static int verify_object(struct walk *walk, const char *name, uint64_t file_bytes)
{
    struct sl_repo_verify *v = walk->verify;
    struct sl_err err = {0};
    uint64_t before = v->bytes;
    int ended = 0;
    int rc = check_object(walk, name, &ended, &err);
    if (rc == SL_ERR_NOT_FOUND && !ended)
        return 0; /* removed by expire since it was listed */
    if (ended || (rc && !sl_code_is_damage(rc))) {
        sl_err_copy(walk->err, &err);
        return rc;
    }
    if (rc)
        report(walk, name, rc, reason_of(walk, name, err.msg));
    v->objects++;
    v->bytes = before + file_bytes;
    return step(walk, walk->err);
}

/* --- folders --------------------------------------------------------------------------------- */

static int verify_folder(struct walk *walk, const char *folder);

static int on_name(void *arg, const char *name, bool is_folder, uint64_t length)
{
    struct level *level = arg;
    struct walk *walk = level->walk;
    char full[SL_FULL_NAME_MAX];
    int fits =
        snprintf(full, sizeof full, "%s%s%s", level->folder, *level->folder ? "/" : "", name);
    if (fits < 0 || (size_t)fits >= sizeof full) {
        report(walk, full, SL_ERR_FORMAT, "no object: its name is too long");
        return 0;
    }
    if (is_folder)
        return verify_folder(walk, full);
    enum sl_backup_part part = sl_backup_part_of(full);
    level->packs += part == SL_PART_PACK;
    level->has_manifest |= part == SL_PART_MANIFEST;
    return verify_object(walk, full, length);
}

static int verify_folder(struct walk *walk, const char *folder)
{
    struct level level = {.walk = walk, .folder = folder};
    int rc = walk->repo->store->ops->list(walk->repo->store, folder, on_name, &level, walk->err);
    if (!level.has_manifest)
        walk->orphans += level.packs;
    return rc;
}

/* `folder` may be one object, or a folder that is not there. */
static int verify_named(struct walk *walk, const char *folder)
{
    struct sl_store *store = walk->repo->store;
    struct sl_file *file;
    struct sl_err err;
    uint64_t file_bytes = 0;
    if (!*folder)
        return verify_folder(walk, folder);
    int opened = store->ops->open(store, folder, &file, &file_bytes, &err);
    if (opened == 0)
        store->ops->close(file);
    else if (opened == SL_ERR_NO_MEMORY)
        return sl_err_copy(walk->err, &err);
    if (opened != SL_ERR_NOT_FOUND && opened != SL_ERR_FORMAT) /* FORMAT: posix, of a folder */
        return verify_object(walk, folder, file_bytes);
    int rc = verify_folder(walk, folder);
    if (rc == 0 && opened == SL_ERR_NOT_FOUND && !walk->verify->objects && !walk->verify->damaged)
        return sl_err_copy(walk->err, &err);
    return rc;
}

int sl_repo_verify(struct sl_repo *repo, const char *folder, struct sl_repo_verify *verify,
                   struct sl_err *err)
{
    struct walk walk = {.repo = repo, .verify = verify, .scope = folder, .err = err};
    verify->objects = verify->bytes = verify->damaged = 0;
    walk.buffer = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!walk.buffer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to check objects");
    int rc = verify_named(&walk, folder);
    sl_pages_free(walk.buffer, SL_BLOCK_BYTES);
    if (walk.orphans)
        sl_log(SL_LOG_DETAIL, "repo",
               "%" PRIu64
               " packs below \"%s\" belong to backups without a manifest: unfinished, or "
               "broken off",
               walk.orphans, folder);
    return rc;
}
