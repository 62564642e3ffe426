/* archive-push: one finished file of pg_wal becomes an object (push_file.c). The status is 0 or 1
 * to 125, because a greater one restarts the archiver without being counted. No look-ahead and no
 * spool: a file is stored before the command ends; the archive module (postgres/archive_module)
 * looks ahead. */
#include "core/base/log.h"
#include "postgres/commands.h"
#include "postgres/push_file.h"
#include "postgres/signals.h"

#define LIMIT_GRACE_MS 5000u /* after the deadline, before the process ends itself */

static int report(const struct sl_pg_push *p, const struct sl_stored *stored)
{
    char digest[SL_ID_TEXT];
    bool identical = stored->outcome == SL_STORED_IDENTICAL;
    sl_id_text(&stored->digest, digest);
    if (identical)
        sl_log(SL_LOG_INFO, "postgres", "\"%s\" was already archived with this content",
               p->name.text);
    else
        sl_log(SL_LOG_DETAIL, "postgres", "archived \"%s\"", p->name.text);
    json_t *result = p->invocation->result;
    if (!result)
        return 0;
    return json_object_set_new(result, "name", json_string(p->name.text)) ||
                   json_object_set_new(result, "bytes",
                                       json_integer((json_int_t)p->stat.st_size)) ||
                   json_object_set_new(result, "digest", json_string(digest)) ||
                   json_object_set_new(result, "outcome",
                                       json_string(identical ? "identical" : "created"))
               ? SL_ERR_NO_MEMORY
               : 0;
}

int sl_pg_archive_push(struct sl_invocation *invocation, struct sl_err *err)
{
    if (sl_option_bool(invocation->options, "dry-run"))
        return sl_err_set(err, SL_ERR_USAGE, "there is no dry run of this command");
    uint64_t timeout_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    struct sl_pg_push p = {.invocation = invocation,
                           .path = invocation->args[0],
                           .deadline = sl_deadline_in_ms(timeout_ms)};
    struct sl_pg_repository repository;
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), timeout_ms + LIMIT_GRACE_MS);
    int rc = sl_pg_push_open(&p, err);
    if (!rc)
        rc = sl_pg_repository_open(invocation, false, true, p.deadline, &repository, err);
    if (!rc) {
        struct sl_stored stored;
        rc = sl_pg_push_store(&p, &repository, &stored, err);
        if (!rc)
            rc = report(&p, &stored);
        sl_pg_repository_close(&repository);
    }
    sl_pg_push_close(&p);
    return rc;
}

int sl_pg_archive_push_status(const struct sl_invocation *invocation, int code)
{
    (void)invocation;
    int status = sl_code_exit(code);
    return code && (status < 1 || status > 125) ? sl_code_exit(SL_ERR_INTERNAL) : status;
}
