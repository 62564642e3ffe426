/* The archive of binary logs as it lies in the repository: histories, files, what they are, gaps.
 * Names are built here and nowhere else. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/object/journal.h"
#include "mysql/binlog_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER      "binlog"
#define ABOUT_MAX   (64u << 10)
#define HISTORY_MAX 9999u

/* --- lists -------------------------------------------------------------------------------------
 */

void sl_my_binlog_list_free(struct sl_my_binlog_list *list)
{
    sl_free(list->files);
    *list = (struct sl_my_binlog_list){0};
}

const struct sl_my_binlog_file *sl_my_binlog_list_find(const struct sl_my_binlog_list *list,
                                                       const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->files[i].name, name) == 0)
            return &list->files[i];
    return NULL;
}

struct sl_my_binlog_file *sl_my_binlog_list_add(struct sl_my_binlog_list *list, const char *name)
{
    uint64_t number = 0;
    size_t base, at = list->count;
    (void)sl_my_binlog_number(name, &number, &base);
    for (size_t i = list->count; i > 0 && list->files[i - 1].number >= number; i--) {
        if (strcmp(list->files[i - 1].name, name) == 0)
            return &list->files[i - 1];
        if (list->files[i - 1].number > number)
            at = i - 1;
    }
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        struct sl_my_binlog_file *files = sl_realloc(list->files, room * sizeof *files);
        if (!files)
            return NULL;
        list->files = files;
        list->room = room;
    }
    memmove(&list->files[at + 1], &list->files[at], (list->count - at) * sizeof *list->files);
    list->count++;
    list->files[at] = (struct sl_my_binlog_file){.number = number};
    snprintf(list->files[at].name, sizeof list->files[at].name, "%s", name);
    return &list->files[at];
}

/* --- names -------------------------------------------------------------------------------------
 */

void sl_my_archive_folder(const struct sl_my_archiver *a, char to[SL_NAME_MAX])
{
    snprintf(to, SL_NAME_MAX, FOLDER "/%s/%04u", a->server.id, a->history);
}

void sl_my_archive_object(const struct sl_my_archiver *a, const char *file, const char *suffix,
                          char to[SL_NAME_MAX])
{
    snprintf(to, SL_NAME_MAX, FOLDER "/%s/%04u/%s%s", a->server.id, a->history, file, suffix);
}

/* --- loading -----------------------------------------------------------------------------------
 */

static int take_history(void *arg, const struct sl_entry *entry)
{
    struct sl_my_archiver *a = arg;
    if (entry->is_folder && strlen(entry->name) == 4 && strspn(entry->name, "0123456789") == 4)
        a->history = (unsigned)strtoul(entry->name, NULL, 10); /* they come in order */
    return 0;
}

/* `*ret_name` without the journal's suffix. */
static bool is_file(const struct sl_entry *entry, char name[SL_MY_BINLOG_NAME_MAX],
                    bool *ret_growing)
{
    uint64_t number;
    size_t base, length = strlen(entry->name);
    *ret_growing = sl_journal_name(entry->name);
    if (*ret_growing)
        length -= strlen(SL_JOURNAL_SUFFIX);
    if (entry->is_folder || length >= SL_MY_BINLOG_NAME_MAX)
        return false;
    snprintf(name, SL_MY_BINLOG_NAME_MAX, "%.*s", (int)length, entry->name);
    return sl_my_binlog_number(name, &number, &base);
}

static int take_file(void *arg, const struct sl_entry *entry)
{
    struct sl_my_binlog_list *list = arg;
    char name[SL_MY_BINLOG_NAME_MAX];
    bool growing;
    if (!is_file(entry, name, &growing))
        return 0;
    struct sl_my_binlog_file *file = sl_my_binlog_list_add(list, name);
    if (!file)
        return SL_ERR_NO_MEMORY;
    file->growing |= growing;
    file->sealed |= !growing;
    file->bytes += entry->length;
    return 0;
}

int sl_my_archive_load(struct sl_my_archiver *a, struct sl_err *err)
{
    char folder[SL_NAME_MAX];
    sl_deadline deadline = sl_deadline_in_ms(a->timeout_ms);
    a->history = 0;
    sl_my_binlog_list_free(&a->archived);
    snprintf(folder, sizeof folder, FOLDER "/%s", a->server.id);
    int rc = sl_client_list(a->client, folder, "", take_history, a, deadline, err);
    if (rc || !a->history)
        return rc;
    sl_my_archive_folder(a, folder);
    return sl_client_list(a->client, folder, "", take_file, &a->archived, deadline, err);
}

static int put_json(struct sl_my_archiver *a, const char *name, json_t *json, struct sl_err *err)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(json);
    if (!text)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_client_put(a->client, name, text, strlen(text), sl_deadline_in_ms(a->timeout_ms),
                           NULL, err);
    free(text); /* jansson's */
    return rc;
}

int sl_my_archive_begin(struct sl_my_archiver *a, const char *why, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    if (a->history >= HISTORY_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "the server has %u histories already", a->history);
    a->history++;
    sl_my_binlog_list_free(&a->archived);
    if (a->history > 1)
        sl_log(SL_LOG_WARN, "binlog", "history %04u begins: %s", a->history, why);
    sl_my_archive_object(a, "history", "", name);
    return put_json(a, name,
                    json_pack("{s:i,s:s,s:s,s:I}", "version", 1, "why", why, "server",
                              a->server.version, "begun_ns", (json_int_t)sl_wall_ns()),
                    err);
}

int sl_my_archive_gap(struct sl_my_archiver *a, const char *file, uint64_t position,
                      const char *next, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    a->gaps++;
    sl_log(SL_LOG_ERROR, "binlog",
           "GAP: the server has removed what came after %s, position %" PRIu64
           ", and before %s, and it was not archived",
           file, position, next);
    sl_my_archive_object(a, file, ".gap", name);
    return put_json(a, name,
                    json_pack("{s:i,s:s,s:I,s:s}", "version", 1, "file", file, "position",
                              (json_int_t)position, "next", next),
                    err);
}

/* --- what a file is ----------------------------------------------------------------------------
 */

char *sl_my_about(const char *file, const struct sl_my_event *format)
{
    char *hex = sl_alloc(format->count * 2 + 1);
    if (!hex)
        return NULL;
    for (size_t i = 0; i < format->count; i++)
        snprintf(hex + 2 * i, 3, "%02x", format->bytes[i]);
    json_t *json = json_pack("{s:i,s:s,s:I,s:I,s:s}", "version", 1, "file", file, "created",
                             (json_int_t)format->created, "server_id",
                             (json_int_t)format->server_id, "format", hex);
    sl_free(hex);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(json);
    char *copy = text ? sl_strdup(text) : NULL;
    free(text); /* jansson's */
    return copy;
}

int sl_my_about_read(struct sl_my_archiver *a, const char *file, uint32_t *ret_created,
                     uint32_t *ret_server_id, struct sl_err *err)
{
    SL_CLEANUP_FREE char *text = NULL;
    char name[SL_NAME_MAX];
    size_t count;
    json_error_t at;
    sl_my_archive_object(a, file, ".about", name);
    int rc = sl_client_fetch(a->client, name, ABOUT_MAX, sl_deadline_in_ms(a->timeout_ms), &text,
                             &count, err);
    if (rc)
        return rc;
    json_t *json = sl_json_load(text, count, &at);
    const json_t *created = json_object_get(json, "created"),
                 *id = json_object_get(json, "server_id");
    if (!json_is_integer(created) || !json_is_integer(id))
        rc = sl_err_set(err, SL_ERR_FORMAT, "\"%s\" cannot be read", name);
    *ret_created = (uint32_t)json_integer_value(created);
    *ret_server_id = (uint32_t)json_integer_value(id);
    json_decref(json);
    return rc;
}

/* --- info --------------------------------------------------------------------------------------
 */

struct telling {
    struct sl_client *client;
    sl_deadline deadline;
    struct sl_err *err;
    json_t *to;
    char path[SL_NAME_MAX];
    /* of one history */
    struct sl_my_binlog_list files;
    json_t *gaps;
};

static int tell_gap(struct telling *t, const char *leaf, json_t *gaps)
{
    SL_CLEANUP_FREE char *text = NULL;
    char name[SL_NAME_MAX * 2];
    size_t count;
    json_error_t at;
    snprintf(name, sizeof name, "%s/%s", t->path, leaf);
    int rc = sl_client_fetch(t->client, name, ABOUT_MAX, t->deadline, &text, &count, t->err);
    if (rc)
        return rc;
    json_t *gap = sl_json_load(text, count, &at);
    if (!json_is_object(gap)) {
        json_decref(gap);
        gap = json_pack("{s:s}", "error", "it cannot be read");
    }
    return json_array_append_new(gaps, gap) ? SL_ERR_NO_MEMORY : 0;
}

static int note_file(void *arg, const struct sl_entry *entry)
{
    struct telling *t = arg;
    size_t length = strlen(entry->name);
    if (length > 4 && strcmp(entry->name + length - 4, ".gap") == 0)
        return json_array_append_new(t->gaps, json_string(entry->name)) ? SL_ERR_NO_MEMORY : 0;
    return take_file(&t->files, entry);
}

static int tell_live(struct telling *t, const struct sl_my_binlog_file *last, json_t *json)
{
    struct sl_object_info info;
    char name[SL_NAME_MAX * 2];
    snprintf(name, sizeof name, "%s/%s%s", t->path, last->name,
             last->sealed ? "" : SL_JOURNAL_SUFFIX);
    int rc = sl_client_stat(t->client, name, t->deadline, &info, t->err);
    if (rc < 0)
        return rc;
    int bad = json_object_set_new(json, "last", json_string(last->name)) |
              json_object_set_new(json, "live", json_boolean(!last->sealed)) |
              json_object_set_new(json, "position", json_integer(rc ? (json_int_t)info.length : 0));
    return bad ? SL_ERR_NO_MEMORY : 0;
}

static int tell_history(struct telling *t, const char *server, const char *history)
{
    uint64_t bytes = 0;
    size_t i;
    json_t *name;
    snprintf(t->path, sizeof t->path, FOLDER "/%.100s/%.10s", server, history);
    t->gaps = json_array();
    json_t *gaps = json_array();
    int rc = t->gaps && gaps
                 ? sl_client_list(t->client, t->path, "", note_file, t, t->deadline, t->err)
                 : SL_ERR_NO_MEMORY;
    json_array_foreach(t->gaps, i, name)
    {
        if (!rc)
            rc = tell_gap(t, json_string_value(name), gaps);
    }
    json_decref(t->gaps);
    for (size_t k = 0; k < t->files.count; k++)
        bytes += t->files.files[k].bytes;
    json_t *json =
        json_pack("{s:s,s:s,s:I,s:I,s:o}", "server", server, "history", history, "files",
                  (json_int_t)t->files.count, "stored_bytes", (json_int_t)bytes, "gaps", gaps);
    if (!rc && !json)
        rc = SL_ERR_NO_MEMORY;
    if (!rc && t->files.count) {
        rc = tell_live(t, &t->files.files[t->files.count - 1], json);
        if (!rc && json_object_set_new(json, "first", json_string(t->files.files[0].name)))
            rc = SL_ERR_NO_MEMORY;
    }
    sl_my_binlog_list_free(&t->files);
    if (!rc && json_array_append(t->to, json))
        rc = SL_ERR_NO_MEMORY;
    json_decref(json);
    return rc;
}

static int note_folder(void *arg, const struct sl_entry *entry)
{
    json_t *names = arg;
    if (!entry->is_folder)
        return 0;
    return json_array_append_new(names, json_string(entry->name)) ? SL_ERR_NO_MEMORY : 0;
}

static int tell_server(struct telling *t, const char *server)
{
    size_t i;
    json_t *histories = json_array(), *history;
    snprintf(t->path, sizeof t->path, FOLDER "/%.100s", server);
    int rc = histories ? sl_client_list(t->client, t->path, "", note_folder, histories, t->deadline,
                                        t->err)
                       : SL_ERR_NO_MEMORY;
    json_array_foreach(histories, i, history)
    {
        if (!rc)
            rc = tell_history(t, server, json_string_value(history));
    }
    json_decref(histories);
    return rc;
}

int sl_my_archive_list(struct sl_client *client, sl_deadline deadline, json_t **ret_list,
                       struct sl_err *err)
{
    struct sl_err scrap = {0};
    struct telling t = {.client = client, .deadline = deadline, .err = &scrap, .to = json_array()};
    size_t i;
    json_t *servers = json_array(), *server;
    int rc = servers && t.to
                 ? sl_client_list(client, FOLDER, "", note_folder, servers, deadline, &scrap)
                 : SL_ERR_NO_MEMORY;
    json_array_foreach(servers, i, server)
    {
        if (!rc)
            rc = tell_server(&t, json_string_value(server));
    }
    json_decref(servers);
    if (rc) {
        json_decref(t.to);
        return scrap.code ? sl_err_copy(err, &scrap) : sl_err_set(err, rc, "out of memory");
    }
    *ret_list = t.to;
    return 0;
}

void sl_my_archive_print(const json_t *list)
{
    size_t i, k;
    const json_t *one, *gap;
    char size[16];
    json_array_foreach(list, i, one)
    {
        const char *first = json_string_value(json_object_get(one, "first"));
        const char *last = json_string_value(json_object_get(one, "last"));
        printf("\n    binary log of %s, history %s\n",
               json_string_value(json_object_get(one, "server")),
               json_string_value(json_object_get(one, "history")));
        if (first && last)
            printf("        %s to %s, position %" PRIu64 "%s; %" PRIu64 " files, %s\n", first, last,
                   (uint64_t)json_integer_value(json_object_get(one, "position")),
                   json_is_true(json_object_get(one, "live")) ? " (live)" : "",
                   (uint64_t)json_integer_value(json_object_get(one, "files")),
                   sl_bytes_text((uint64_t)json_integer_value(json_object_get(one, "stored_bytes")),
                                 size, sizeof size));
        json_array_foreach(json_object_get(one, "gaps"), k, gap)
        {
            const char *file = json_string_value(json_object_get(gap, "file"));
            const char *next = json_string_value(json_object_get(gap, "next"));
            printf("        GAP: missing from %s, position %" PRIu64 ", to %s\n", file ? file : "?",
                   (uint64_t)json_integer_value(json_object_get(gap, "position")),
                   next ? next : "?");
        }
    }
}
