/* The backups of a stanza, by listing and by their manifests' headers. */
#include "postgres/catalog.h"

#include "core/cli/backup_folder.h"

#include <stdio.h>
#include <string.h>

/* --- header ------------------------------------------------------------------------------------
 */

struct header {
    struct sl_pg_backup_info *info;
    struct sl_err *err;
    int code; /* of the parsing */
};

static int take_header(void *arg, const char *label, const char *prior, const char *json)
{
    struct header *h = arg;
    (void)prior;
    h->code = sl_pg_backup_info_parse(label, json, h->info, h->err);
    return 1; /* enough read */
}

static int feed_until_header(struct sl_download *download, struct sl_manifest_reader *reader,
                             sl_deadline deadline, struct sl_err *err)
{
    for (;;) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        int rc = sl_download_next(download, &block, &bytes, &count, deadline, err);
        if (rc > 0)
            rc = sl_manifest_feed(reader, bytes, count, err);
        else if (!rc)
            rc = sl_err_set(err, SL_ERR_FORMAT, "a manifest without a header");
        if (rc)
            return rc;
    }
}

int sl_pg_catalog_read(struct sl_client *client, const char *label, sl_deadline deadline,
                       struct sl_pg_backup_info *ret_info, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_manifest_reader *reader = NULL;
    struct sl_object_info object;
    struct header header = {.info = ret_info, .err = err};
    const struct sl_manifest_visitor visitor = {.header = take_header, .arg = &header};
    snprintf(name, sizeof name, "backup/%s/manifest", label);
    int rc = sl_download_open(client, name, NULL, deadline, &download, &object, err);
    if (rc)
        return rc;
    rc = sl_manifest_reader_new(&visitor, &reader, err);
    if (!rc)
        rc = feed_until_header(download, reader, deadline, err);
    sl_manifest_reader_free(reader);
    sl_download_close(download);
    if (rc == 1)
        return header.code;
    sl_err_prefix(err, "backup \"%s\"", label);
    return rc;
}

/* --- labels ------------------------------------------------------------------------------------
 */

/* The newest is the one whose own time is last, which is not the last in the listing once there
 * are increments ("…F_…I" stands before the next "…F", but the greatest name after it). */
struct newest {
    const char *full;
    char *label;
};

static int take_newest(void *arg, const char *label)
{
    const struct newest *n = arg;
    char *newest = n->label;
    if (n->full[0] && strncmp(label, n->full, strlen(n->full)) != 0)
        return 0;
    if (!newest[0] || strcmp(sl_label_stamp(label), sl_label_stamp(newest)) > 0)
        snprintf(newest, SL_LABEL_MAX, "%s", label);
    return 0;
}

int sl_pg_catalog_newest_label(struct sl_client *client, const char *full, sl_deadline deadline,
                               char ret_label[SL_LABEL_MAX], struct sl_err *err)
{
    struct newest newest = {full, ret_label};
    ret_label[0] = '\0';
    return sl_folder_labels(client, take_newest, &newest, deadline, err);
}

/* --- every backup ------------------------------------------------------------------------------
 */

struct visits {
    struct sl_client *client;
    const struct sl_pg_catalog_visitor *visitor;
    sl_deadline deadline;
    struct sl_err nested; /* a failure inside of a visit; the listing around it says its own */
};

static int visit_label(void *arg, const char *label)
{
    struct visits *v = arg;
    struct sl_pg_backup_info info;
    int rc = sl_pg_catalog_read(v->client, label, v->deadline, &info, &v->nested);
    if (rc == SL_ERR_NOT_FOUND)
        return 0; /* in progress, or never finished */
    if (rc && v->visitor->broken && !sl_code_retryable(rc)) {
        v->visitor->broken(v->visitor->arg, label, &v->nested);
        return 0;
    }
    if (rc)
        return rc;
    rc = sl_folder_gone(v->client, label, v->deadline, &v->nested);
    if (!rc)
        rc = v->visitor->backup(v->visitor->arg, &info);
    else if (rc == 1) /* expire is removing it */
        rc = 0;
    sl_pg_backup_info_fini(&info);
    return rc;
}

int sl_pg_catalog_visit(struct sl_client *client, const struct sl_pg_catalog_visitor *visitor,
                        sl_deadline deadline, struct sl_err *err)
{
    struct visits visits = {.client = client, .visitor = visitor, .deadline = deadline};
    int rc = sl_folder_labels(client, visit_label, &visits, deadline, err);
    if (rc < 0 && visits.nested.code == rc)
        sl_err_copy(err, &visits.nested);
    return rc;
}
