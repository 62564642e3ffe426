/* Reading listings and manifests. What is in a stream is not looked at. */
#include "mysql/catalog.h"

#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/cli/backup_folder.h"
#include "mysql/repository.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_MAX (32u << 20)

/* --- one manifest ------------------------------------------------------------------------------
 */

struct reading {
    struct sl_my_manifest *manifest;
    struct sl_manifest_pack *packs; /* in the order of their numbers */
    size_t count, room;
    struct sl_err nested;
};

static int take_header(void *arg, const char *label, const char *prior, const char *json)
{
    struct reading *r = arg;
    struct sl_my_manifest *m = r->manifest;
    json_error_t at;
    snprintf(m->label, sizeof m->label, "%.63s", label);
    snprintf(m->prior, sizeof m->prior, "%.63s", prior);
    m->header = sl_json_load(json, strlen(json), &at);
    if (json_is_object(m->header) && strcmp(sl_my_manifest_text(m, "engine"), SL_MY_ENGINE) == 0 &&
        sl_my_manifest_number(m, "version") == 1)
        return 0;
    return sl_err_set(&r->nested, SL_ERR_FORMAT, "it is not one of MariaDB in a form known here");
}

static int take_pack(void *arg, const struct sl_manifest_pack *pack)
{
    struct reading *r = arg;
    if (r->count == SL_MY_PARTS_MAX)
        return sl_err_set(&r->nested, SL_ERR_FORMAT, "it has too many streams");
    if (r->count == r->room) {
        size_t room = r->room * 2 + 8;
        struct sl_manifest_pack *bigger = sl_realloc(r->packs, room * sizeof *bigger);
        if (!bigger)
            return sl_err_set(&r->nested, SL_ERR_NO_MEMORY, "out of memory");
        r->packs = bigger;
        r->room = room;
    }
    r->packs[r->count++] = *pack;
    return 0;
}

/* Each entry is one whole stream. */
static int take_entry(void *arg, const struct sl_manifest_entry *entry)
{
    struct reading *r = arg;
    char label[SL_LABEL_MAX];
    size_t length = strcspn(entry->path, "/");
    const struct sl_manifest_pack *pack = NULL;
    for (size_t i = 0; i < r->count && entry->extent_count == 1; i++)
        if (r->packs[i].number == entry->extents[0].pack)
            pack = &r->packs[i];
    snprintf(label, sizeof label, "%.*s", length < sizeof label ? (int)length : 0, entry->path);
    if (!pack || pack->length != entry->size || entry->kind != SL_ENTRY_FILE ||
        !sl_label_valid(label))
        return sl_err_set(&r->nested, SL_ERR_FORMAT, "\"%.100s\" is not a stream", entry->path);
    return sl_my_manifest_add(r->manifest, label, pack, &r->nested);
}

int sl_my_manifest_add(struct sl_my_manifest *m, const char *label,
                       const struct sl_manifest_pack *pack, struct sl_err *err)
{
    if (m->count == SL_MY_PARTS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "a backup cannot build on more than %d streams",
                          SL_MY_PARTS_MAX);
    if (m->count == m->room) {
        size_t room = m->room * 2 + 8;
        struct sl_my_part *bigger = sl_realloc(m->parts, room * sizeof *bigger);
        if (!bigger)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        m->parts = bigger;
        m->room = room;
    }
    struct sl_my_part *part = &m->parts[m->count++];
    part->pack = *pack;
    snprintf(part->label, sizeof part->label, "%s", label);
    return 0;
}

static int parse(struct reading *r, const char *bytes, size_t count, struct sl_err *err)
{
    const struct sl_manifest_visitor visitor = {
        .header = take_header, .pack = take_pack, .entry = take_entry, .arg = r};
    struct sl_manifest_reader *reader;
    uint64_t entries, total;
    int rc = sl_manifest_reader_new(&visitor, &reader, err);
    if (rc)
        return rc;
    rc = sl_manifest_feed(reader, bytes, count, err);
    if (!rc)
        rc = sl_manifest_finish(reader, &entries, &total, err);
    sl_manifest_reader_free(reader);
    if (rc && r->nested.code == rc)
        return sl_err_copy(err, &r->nested);
    if (!rc && (!r->manifest->count ||
                strcmp(r->manifest->parts[r->manifest->count - 1].label, r->manifest->label) != 0))
        rc = sl_err_set(err, SL_ERR_FORMAT, "it does not end with a stream of its own");
    return rc;
}

int sl_my_manifest_read(struct sl_client *client, const char *label, sl_deadline deadline,
                        struct sl_my_manifest *ret_manifest, struct sl_err *err)
{
    SL_CLEANUP_FREE char *bytes = NULL;
    size_t count;
    char name[SL_NAME_MAX];
    struct sl_my_manifest m = {0};
    struct reading r = {.manifest = &m};
    snprintf(name, sizeof name, "backup/%s/manifest", label);
    int rc = sl_client_fetch(client, name, MANIFEST_MAX, deadline, &bytes, &count, err);
    if (!rc)
        rc = parse(&r, bytes, count, err);
    sl_free(r.packs);
    if (rc)
        sl_my_manifest_fini(&m);
    else
        *ret_manifest = m;
    return rc ? sl_err_prefix(err, "backup \"%s\"", label) : 0;
}

void sl_my_manifest_fini(struct sl_my_manifest *m)
{
    json_decref(m->header);
    sl_free(m->parts);
    *m = (struct sl_my_manifest){0};
}

const char *sl_my_manifest_text(const struct sl_my_manifest *m, const char *key)
{
    const char *text = json_string_value(json_object_get(m->header, key));
    return text ? text : "";
}

uint64_t sl_my_manifest_number(const struct sl_my_manifest *m, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(m->header, key));
}

/* --- all of them -------------------------------------------------------------------------------
 */

/* In order: an increment's own time is behind its full one's label. */
static int take_label(void *arg, const char *label)
{
    json_t *labels = arg;
    size_t at = json_array_size(labels);
    const char *stamp = sl_label_stamp(label);
    while (at &&
           strcmp(sl_label_stamp(json_string_value(json_array_get(labels, at - 1))), stamp) > 0)
        at--;
    return json_array_insert_new(labels, at, json_string(label)) ? SL_ERR_NO_MEMORY : 0;
}

int sl_my_labels(struct sl_client *client, sl_deadline deadline, json_t **ret_labels,
                 struct sl_err *err)
{
    json_t *labels = json_array();
    int rc = labels ? sl_folder_labels(client, take_label, labels, deadline, err)
                    : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc)
        json_decref(labels);
    else
        *ret_labels = labels;
    return rc;
}

int sl_my_is_there(struct sl_client *client, const char *label, sl_deadline deadline,
                   struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_object_info info;
    snprintf(name, sizeof name, "backup/%s/manifest", label);
    int rc = sl_client_stat(client, name, deadline, &info, err);
    if (rc != 1)
        return rc;
    rc = sl_folder_gone(client, label, deadline, err);
    return rc < 0 ? rc : !rc;
}
