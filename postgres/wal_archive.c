/* What WAL the repository holds: questions by listing. Nothing is read from the segments. */
#include "postgres/wal_archive.h"

#include <stdio.h>
#include <string.h>

/* --- later than --------------------------------------------------------------------------------
 */

struct later {
    struct sl_client *client;
    uint64_t system_id;
    const struct sl_pg_wal_name *name;
    sl_deadline deadline;
    struct sl_err nested; /* a failure inside of a visit; the listing around it says its own */
    char found[SL_PG_WAL_NAME_BYTES];
};

static bool is_later(const struct sl_pg_wal_name *a, const struct sl_pg_wal_name *b)
{
    return a->high != b->high ? a->high > b->high : a->low > b->low;
}

static int visit_segment(void *arg, const struct sl_entry *entry)
{
    struct later *later = arg;
    struct sl_pg_wal_name name;
    if (entry->is_folder || sl_pg_wal_name_parse(entry->name, &name, NULL) ||
        (name.kind != SL_PG_SEGMENT && name.kind != SL_PG_PARTIAL) || !is_later(&name, later->name))
        return 0;
    memcpy(later->found, name.text, sizeof later->found);
    return 1;
}

static int visit_later_folder(void *arg, const struct sl_entry *entry)
{
    struct later *later = arg;
    if (!entry->is_folder || strlen(entry->name) != 16)
        return 0;
    char timeline[SL_NAME_MAX], folder[SL_NAME_MAX + 32];
    sl_pg_wal_timeline_folder(later->system_id, later->name->timeline, timeline, sizeof timeline);
    snprintf(folder, sizeof folder, "%s/%.16s", timeline, entry->name);
    return sl_client_list(later->client, folder, "", visit_segment, later, later->deadline,
                          &later->nested);
}

int sl_pg_wal_later(struct sl_client *client, uint64_t system_id, const struct sl_pg_wal_name *name,
                    sl_deadline deadline, char ret_later[SL_PG_WAL_NAME_BYTES], struct sl_err *err)
{
    struct later later = {
        .client = client, .system_id = system_id, .name = name, .deadline = deadline};
    char folder[SL_NAME_MAX], after[32];
    sl_pg_wal_segment_folder(system_id, name, folder, sizeof folder);
    snprintf(after, sizeof after, "%.24s", name->text);
    int rc = sl_client_list(client, folder, after, visit_segment, &later, deadline, err);
    if (!rc) {
        sl_pg_wal_timeline_folder(system_id, name->timeline, folder, sizeof folder);
        snprintf(after, sizeof after, "%.16s", name->text);
        rc = sl_client_list(client, folder, after, visit_later_folder, &later, deadline, err);
    }
    if (rc > 0)
        memcpy(ret_later, later.found, sizeof later.found);
    if (rc < 0 && later.nested.code == rc)
        sl_err_copy(err, &later.nested);
    return rc;
}

/* --- ranges ------------------------------------------------------------------------------------
 */

struct ranges {
    struct sl_client *client;
    uint64_t system_id;
    uint32_t segment_bytes;
    int (*visit)(void *arg, const struct sl_pg_wal_range *range);
    void *arg;
    sl_deadline deadline;
    struct sl_err nested;     /* as above */
    char folder[SL_NAME_MAX]; /* that is being listed */
    struct sl_pg_wal_range range;
    uint64_t next; /* number that would continue the range */
};

static int end_range(struct ranges *r)
{
    int rc = r->range.count ? r->visit(r->arg, &r->range) : 0;
    r->range.count = 0;
    return rc;
}

/* The size of a segment, from the object; every segment of a system has the same. */
static int learn_size(struct ranges *r, const struct sl_pg_wal_name *name)
{
    char object[SL_NAME_MAX];
    struct sl_object_info info;
    sl_pg_wal_object(r->system_id, name, object, sizeof object);
    int rc = sl_client_stat(r->client, object, r->deadline, &info, &r->nested);
    if (rc > 0 && sl_pg_segment_bytes_valid(info.length))
        r->segment_bytes = (uint32_t)info.length;
    return rc < 0 ? rc : 0;
}

static int visit_name(void *arg, const struct sl_entry *entry)
{
    struct ranges *r = arg;
    struct sl_pg_wal_name name;
    if (entry->is_folder || sl_pg_wal_name_parse(entry->name, &name, NULL) ||
        name.kind != SL_PG_SEGMENT)
        return 0;
    int rc = r->segment_bytes ? 0 : learn_size(r, &name);
    if (rc)
        return rc;
    if (!r->segment_bytes) /* a damaged object: verify names it */
        return 0;
    uint64_t number = sl_pg_segment_number(&name, r->segment_bytes);
    if (r->range.count && (r->range.timeline != name.timeline || number != r->next))
        rc = end_range(r);
    if (rc)
        return rc;
    if (!r->range.count++) {
        r->range.timeline = name.timeline;
        memcpy(r->range.first, name.text, sizeof r->range.first);
    }
    memcpy(r->range.last, name.text, sizeof r->range.last);
    r->next = number + 1;
    return 0;
}

/* Goes down one level of folders, whose names have `length` characters. */
static int descend(struct ranges *r, const struct sl_entry *entry, size_t length,
                   int (*visit)(void *, const struct sl_entry *))
{
    if (!entry->is_folder || strlen(entry->name) != length)
        return 0;
    size_t used = strlen(r->folder);
    snprintf(r->folder + used, sizeof r->folder - used, "/%s", entry->name);
    char folder[SL_NAME_MAX];
    memcpy(folder, r->folder, sizeof folder);
    int rc = sl_client_list(r->client, folder, "", visit, r, r->deadline, &r->nested);
    r->folder[used] = '\0';
    return rc;
}

static int visit_segment_folder(void *arg, const struct sl_entry *entry)
{
    return descend(arg, entry, 16, visit_name);
}

static int visit_timeline_folder(void *arg, const struct sl_entry *entry)
{
    return descend(arg, entry, 8, visit_segment_folder);
}

int sl_pg_wal_ranges(struct sl_client *client, uint64_t system_id, uint32_t segment_bytes,
                     int (*visit)(void *arg, const struct sl_pg_wal_range *range), void *arg,
                     sl_deadline deadline, struct sl_err *err)
{
    struct ranges r = {.client = client,
                       .system_id = system_id,
                       .segment_bytes = segment_bytes,
                       .visit = visit,
                       .arg = arg,
                       .deadline = deadline};
    snprintf(r.folder, sizeof r.folder, "wal/%llu", (unsigned long long)system_id);
    char folder[SL_NAME_MAX];
    memcpy(folder, r.folder, sizeof folder);
    int rc = sl_client_list(client, folder, "", visit_timeline_folder, &r, deadline, err);
    if (rc < 0 && r.nested.code == rc)
        sl_err_copy(err, &r.nested);
    return rc ? rc : end_range(&r);
}
