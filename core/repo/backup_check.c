/* Checks of backups as wholes: a manifest against the packs it names, a pack's index against the
 * pack. Fed with content whose digests fitted; finds what digests cannot: a pack that is missing or
 * another one, records that make no sense. */
#include "core/base/alloc.h"
#include "core/repo/record.h"
#include "core/repo/repo_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_backup_check {
    struct sl_object *object;
    void (*damage)(void *arg, const char *name, int code, const char *text);
    void *arg;
    const char *scope; /* packs below it are looked at by themselves in the same walk */
    enum sl_backup_part part;
    struct sl_manifest_reader *reader; /* NULL: nothing to check */
    uint64_t from;                     /* where in the content the records begin */
    struct sl_pack_set limits;         /* of each pack: where its index begins */
    uint32_t own_number;               /* of a pack; 0: not known */
    char label[SL_LABEL_MAX], stanza[SL_STANZA_MAX];
    int code; /* the first thing wrong with the records */
    struct sl_err err;
};

/* --- names ----------------------------------------------------------------------------------- */

/* The four components of "<stanza>/backup/<label>/<part>", or false. */
static bool split(const char *full_name, char stanza[SL_STANZA_MAX], char label[SL_LABEL_MAX],
                  const char **ret_part)
{
    const char *first = strchr(full_name, '/');
    if (!first || (size_t)(first - full_name) >= SL_STANZA_MAX ||
        strncmp(first, "/backup/", 8) != 0)
        return false;
    const char *name = first + 8, *end = strchr(name, '/');
    if (!end || (size_t)(end - name) >= SL_LABEL_MAX || strchr(end + 1, '/'))
        return false;
    snprintf(stanza, SL_STANZA_MAX, "%.*s", (int)(first - full_name), full_name);
    snprintf(label, SL_LABEL_MAX, "%.*s", (int)(end - name), name);
    *ret_part = end + 1;
    return true;
}

static enum sl_backup_part part_of(const char *part)
{
    if (!strcmp(part, "manifest"))
        return SL_PART_MANIFEST;
    return strncmp(part, "pack-", 5) == 0 ? SL_PART_PACK : SL_PART_OTHER;
}

enum sl_backup_part sl_backup_part_of(const char *full_name)
{
    char stanza[SL_STANZA_MAX], label[SL_LABEL_MAX];
    const char *part;
    return split(full_name, stanza, label, &part) ? part_of(part) : SL_PART_NONE;
}

static bool is_below(const char *name, const char *folder)
{
    size_t length = strlen(folder);
    return !length ||
           (!strncmp(name, folder, length) && (name[length] == '/' || name[length] == '\0'));
}

/* --- what the records say -------------------------------------------------------------------- */

static int remember(struct sl_backup_check *check, int rc, const struct sl_err *err)
{
    if (!check->code) {
        check->code = rc;
        sl_err_copy(&check->err, err);
    }
    return rc;
}

static int on_header(void *arg, const char *label, const char *prior, const char *json)
{
    struct sl_backup_check *check = arg;
    struct sl_err err;
    (void)prior;
    (void)json;
    if (!strcmp(label, check->label))
        return 0;
    return remember(
        check, sl_err_set(&err, SL_ERR_FORMAT, "it is the manifest of backup \"%s\"", label), &err);
}

/* Is expire removing the backup whose manifest this is? Then it is no damage that parts are missing
 * (docs/repository.md, "Removing": the mark is durable before anything goes). */
static bool is_marked(const struct sl_backup_check *check)
{
    char full[SL_FULL_NAME_MAX + 64];
    struct sl_trailer trailer;
    snprintf(full, sizeof full, "%s/backup/%s/expired", check->stanza, check->label);
    return sl_object_stat(check->object->repo, full, &trailer, NULL) == 0;
}

/* Is the pack there, and the one that was meant? */
static int on_pack(void *arg, const struct sl_manifest_pack *pack)
{
    struct sl_backup_check *check = arg;
    struct sl_err err;
    char full[SL_FULL_NAME_MAX], text[SL_ERR_MSG_BYTES];
    uint64_t limit = pack->length;
    int rc = sl_repo_name(check->stanza, pack->name, false, full, &err);
    if (rc)
        return remember(check, rc, &err);
    struct sl_trailer trailer;
    rc = sl_object_stat(check->object->repo, full, &trailer, &err);
    if (rc == 0) {
        limit = trailer.length - trailer.index_bytes;
        if (trailer.length != pack->length ||
            !sl_id_equal(&trailer.content_digest, &pack->digest)) {
            snprintf(text, sizeof text, "not the pack that \"%s\" names",
                     check->object->trailer.name);
            check->damage(check->arg, full, SL_ERR_CHECKSUM, text);
            limit = pack->length;
        }
    } else if (rc == SL_ERR_NOT_FOUND) {
        snprintf(text, sizeof text, "missing, but \"%s\" needs it", check->object->trailer.name);
        if (!is_marked(check))
            check->damage(check->arg, full, rc, text);
    } else if (!sl_code_is_damage(rc)) {
        return remember(check, rc, &err);
    } else if (!is_below(full, check->scope)) {
        check->damage(check->arg, full, rc, err.msg);
    }
    rc = sl_pack_set_add(&check->limits, pack->number, limit, &err);
    return rc ? remember(check, rc, &err) : 0;
}

static int on_entry(void *arg, const struct sl_manifest_entry *entry)
{
    struct sl_backup_check *check = arg;
    struct sl_err err;
    if (check->part == SL_PART_MANIFEST) {
        int rc = sl_pack_set_check(&check->limits, entry, &err);
        return rc ? remember(check, rc, &err) : 0;
    }
    for (uint32_t i = 0; check->own_number && i < entry->extent_count; i++) {
        const struct sl_extent *x = &entry->extents[i];
        if (x->pack == check->own_number &&
            (x->length > check->from || x->pack_offset > check->from - x->length))
            return remember(check,
                            sl_err_set(&err, SL_ERR_FORMAT, "its index refers beyond its content"),
                            &err);
    }
    return 0;
}

/* --- feeding --------------------------------------------------------------------------------- */

static uint32_t number_of(const char *part)
{
    char *end;
    unsigned long number = strtoul(part + strlen("pack-"), &end, 10);
    return *end || number > UINT32_MAX ? 0 : (uint32_t)number;
}

static int open_reader(struct sl_backup_check *check, struct sl_err *err)
{
    const struct sl_trailer *trailer = &check->object->trailer;
    struct sl_manifest_visitor visitor = {on_header, on_pack, on_entry, check};
    const char *part;
    if (!split(trailer->name, check->stanza, check->label, &part))
        return 0;
    check->part = part_of(part);
    if (check->part == SL_PART_MANIFEST)
        return sl_manifest_reader_new(&visitor, &check->reader, err);
    if (check->part != SL_PART_PACK || !trailer->index_bytes)
        return 0;
    check->from = trailer->length - trailer->index_bytes;
    check->own_number = number_of(part);
    return sl_pack_index_reader_new(&visitor, &check->reader, err);
}

int sl_backup_check_new(struct sl_object *object,
                        void (*damage)(void *arg, const char *name, int code, const char *text),
                        void *arg, const char *scope, struct sl_backup_check **ret,
                        struct sl_err *err)
{
    struct sl_backup_check *check = sl_calloc(1, sizeof *check);
    if (!check)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to check a backup");
    check->object = object;
    check->damage = damage;
    check->arg = arg;
    check->scope = scope;
    int rc = open_reader(check, err);
    if (rc) {
        sl_backup_check_free(check);
        return rc;
    }
    *ret = check;
    return 0;
}

void sl_backup_check_free(struct sl_backup_check *check)
{
    if (!check)
        return;
    sl_manifest_reader_free(check->reader);
    sl_pack_set_fini(&check->limits);
    sl_free(check);
}

/* Wrong records end the checking of records, not of the object: 0 unless the check itself fails. */
int sl_backup_check_feed(struct sl_backup_check *check, uint64_t offset, const void *bytes,
                         size_t count, struct sl_err *err)
{
    struct sl_err found;
    if (!check->reader || check->code || offset + count <= check->from)
        return 0;
    size_t skip = offset < check->from ? (size_t)(check->from - offset) : 0;
    int rc = sl_manifest_feed(check->reader, (const uint8_t *)bytes + skip, count - skip, &found);
    if (rc)
        remember(check, rc, &found); /* a callback may have said it better already */
    if (check->code && !sl_code_is_damage(check->code))
        return sl_err_copy(err, &check->err);
    return 0;
}

int sl_backup_check_finish(struct sl_backup_check *check, struct sl_err *err)
{
    struct sl_err found;
    if (!check->reader)
        return 0;
    if (!check->code) {
        int rc = sl_manifest_finish(check->reader, NULL, NULL, &found);
        if (rc)
            remember(check, rc, &found);
    }
    if (!check->code)
        return 0;
    sl_err_copy(err, &check->err);
    sl_err_prefix(err, "\"%s\"", check->object->trailer.name);
    return check->code;
}
