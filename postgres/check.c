/* check: do server, archiving and repository work together? The proof is a segment: the server is
 * made to finish one, and it must arrive in the repository and read back whole. Each finding is one
 * line; the first that failed gives the status. */
#include "core/base/alloc.h"
#include "core/cli/findings.h"
#include "postgres/commands.h"
#include "postgres/control_file.h"
#include "postgres/db.h"
#include "postgres/repository.h"
#include "postgres/signals.h"
#include "postgres/wal_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SKEW_MS_MOST 5000

struct check {
    const struct sl_invocation *invocation;
    struct sl_pg_repository repository;
    struct sl_pg_db *db;
    struct sl_pg_server server;
    struct sl_findings found;
};

static sl_deadline deadline_of(const struct check *c)
{
    return sl_deadline_in_ms((uint64_t)sl_option_int(c->invocation->options, "timeout"));
}

/* --- repository and transport ------------------------------------------------------------------
 */

static bool check_repository(struct check *c)
{
    struct sl_err err = {0};
    if (sl_pg_repository_open(c->invocation, false, false, deadline_of(c), &c->repository, &err)) {
        sl_findings_failed(&c->found, "repository", &err);
        return false;
    }
    sl_findings_ok(&c->found, "repository", "stanza \"%s\", system identifier %llu",
                   c->invocation->stanza, (unsigned long long)c->repository.system_id);
    sl_findings_connection(&c->found, c->repository.connection, deadline_of(c));
    return true;
}

/* --- server ------------------------------------------------------------------------------------
 */

static void check_folder(struct check *c)
{
    const char *given = sl_option_string(c->invocation->options, "pg-path");
    const char *folder = given ? given : c->server.data_directory;
    struct sl_pg_control control;
    struct sl_err err = {0};
    if (!folder[0]) {
        sl_findings_warn(&c->found, "data directory",
                         "the server does not tell it to this user; backup needs pg-path");
        return;
    }
    int rc = sl_pg_control_read(folder, deadline_of(c), NULL, &control, &err);
    if (!rc && control.system_id != c->server.system_id)
        rc = sl_err_set(&err, SL_ERR_MISMATCH,
                        "\"%s\" is not the folder of the server that was asked", folder);
    if (rc)
        sl_findings_failed(&c->found, "data directory", &err);
    else
        sl_findings_ok(&c->found, "data directory", "%s", folder);
}

static void check_archiving(struct check *c)
{
    const struct sl_pg_server *s = &c->server;
    struct sl_err err = {0};
    if (!strcmp(s->archive_mode, "off")) {
        sl_err_set(&err, SL_ERR_DB_STATE, "archive_mode is off%s",
                   s->archive_mode_waits ? ": it was changed, but the server was not restarted"
                                         : "");
        sl_err_hint(&err, s->archive_mode_waits ? "restart the server"
                                                : "set archive_mode = on (needs a restart)");
        sl_findings_failed(&c->found, "archive_mode", &err);
        return;
    }
    sl_findings_ok(&c->found, "archive_mode", "%s", s->archive_mode);
    if (!s->archive_command[0] && !s->archive_library[0]) {
        sl_err_set(&err, SL_ERR_DB_STATE, "neither archive_command nor archive_library is set");
        sl_err_hint(&err, "archive_command = 'sluice --stanza=%s archive-push %%p'",
                    c->invocation->stanza);
        sl_findings_failed(&c->found, "archive_command", &err);
        return;
    }
    if (!s->archive_timeout_s)
        sl_findings_warn(
            &c->found, "archive_timeout",
            "off: on a quiet server the last changes stay out of the archive for as long as their "
            "segment lasts; set it, 60 for example");
    else
        sl_findings_ok(&c->found, "archive_timeout", "%u s", s->archive_timeout_s);
    if (s->archive_library[0])
        sl_findings_ok(&c->found, "archive_library", "%s", s->archive_library);
    else
        sl_findings_ok(&c->found, "archive_command", "%s", s->archive_command);
}

/* Restores choose backups by the server's clock, and people by theirs. */
static void check_server_clock(struct check *c)
{
    double skew = c->server.clock - (double)sl_wall_ns() / 1e9;
    if (skew > SKEW_MS_MOST / 1e3 || skew < -SKEW_MS_MOST / 1e3)
        sl_findings_warn(&c->found, "server's clock", "differs from this host's by %.1f s", skew);
}

/* What backup and check call, as the role that they connect as. */
static const char rights_sql[] =
    "SELECT f, has_function_privilege(f, 'EXECUTE') FROM (VALUES"
    " (CASE WHEN $1::int >= 150000 THEN 'pg_backup_start(text,boolean)'"
    "  ELSE 'pg_start_backup(text,boolean,boolean)' END),"
    " (CASE WHEN $1::int >= 150000 THEN 'pg_backup_stop(boolean)'"
    "  ELSE 'pg_stop_backup(boolean,boolean)' END),"
    " ('pg_switch_wal()'), ('pg_create_restore_point(text)')) AS wanted (f)"
    " UNION ALL SELECT 'pg_read_all_settings', pg_has_role('pg_read_all_settings', 'USAGE')"
    " UNION ALL SELECT current_user, true";

static void check_rights(struct check *c)
{
    char version[16], missing[512] = "", grants[1024] = "", role[128] = "";
    const char *parameters[] = {version};
    struct sl_pg_rows *rows = NULL;
    struct sl_err err = {0};
    snprintf(version, sizeof version, "%d", c->server.version_num);
    if (sl_pg_db_query(c->db, rights_sql, parameters, 1, deadline_of(c), &rows, &err)) {
        sl_findings_failed(&c->found, "rights", &err);
        return;
    }
    int count = sl_pg_rows_count(rows);
    snprintf(role, sizeof role, "%s", count ? sl_pg_rows_value(rows, count - 1, 0) : "");
    for (int i = 0; i + 1 < count; i++) {
        const char *what = sl_pg_rows_value(rows, i, 0), *has = sl_pg_rows_value(rows, i, 1);
        if (!what || !has || *has == 't')
            continue;
        size_t used = strlen(missing), said = strlen(grants);
        snprintf(missing + used, sizeof missing - used, "%s%s", used ? ", " : "", what);
        snprintf(grants + said, sizeof grants - said, "%s %s TO %s;",
                 strchr(what, '(') ? "GRANT EXECUTE ON FUNCTION" : "GRANT", what, role);
    }
    sl_pg_rows_free(rows);
    if (!missing[0]) {
        sl_findings_ok(&c->found, "rights", "\"%s\" has all that a backup needs", role);
        return;
    }
    sl_err_set(&err, SL_ERR_DENIED, "\"%s\" lacks %s", role, missing);
    sl_err_hint(&err, "%s", grants);
    sl_findings_failed(&c->found, "rights", &err);
}

static bool check_server(struct check *c)
{
    struct sl_err err = {0};
    if (sl_pg_db_connect(c->invocation, deadline_of(c), &c->db, &err) ||
        sl_pg_db_server(c->db, deadline_of(c), &c->server, &err)) {
        sl_findings_failed(&c->found, "server", &err);
        return false;
    }
    sl_findings_ok(&c->found, "server", "PostgreSQL %s, timeline %u, WAL segments of %u MB%s",
                   c->server.version_text, c->server.timeline, c->server.wal_segment_bytes >> 20,
                   c->server.in_recovery ? ", in recovery" : "");
    check_server_clock(c);
    check_rights(c);
    check_folder(c);
    check_archiving(c);
    return true;
}

/* --- a segment ---------------------------------------------------------------------------------
 */

static int switch_wal(struct check *c, struct sl_pg_wal_name *ret_name, struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    /* a switch does nothing when nothing was written since the last one */
    int rc = sl_pg_db_query(c->db, "SELECT pg_create_restore_point('sluice check')", NULL, 0,
                            deadline_of(c), NULL, err);
    if (!rc)
        rc = sl_pg_db_query(c->db,
                            "SELECT pg_switch_wal(), timeline_id FROM pg_control_checkpoint()",
                            NULL, 0, deadline_of(c), &rows, err);
    if (rc)
        return rc;
    const char *lsn = sl_pg_rows_value(rows, 0, 0), *timeline = sl_pg_rows_value(rows, 0, 1);
    uint64_t at = 0;
    rc = sl_pg_lsn_parse(lsn ? lsn : "", &at, err);
    if (!rc)
        sl_pg_segment_name(timeline ? (uint32_t)strtoul(timeline, NULL, 10) : 1,
                           sl_pg_lsn_segment_before(at, c->server.wal_segment_bytes),
                           c->server.wal_segment_bytes, ret_name);
    sl_pg_rows_free(rows);
    return rc;
}

static int wait_for(struct check *c, const char *object, struct sl_err *err)
{
    uint64_t ms = (uint64_t)sl_option_int(c->invocation->options, "archive-timeout");
    sl_deadline deadline = sl_deadline_in_ms(ms);
    struct sl_object_info info;
    for (;;) {
        int rc = sl_client_stat(c->repository.client, object, deadline_of(c), &info, err);
        if (rc)
            return rc > 0 ? 0 : rc;
        if (sl_pg_signals_caught())
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
        if (sl_deadline_passed(deadline)) {
            sl_err_set(err, SL_ERR_WAL_TIMEOUT, "\"%s\" was not archived within %llu s",
                       sl_pg_base_name(object), (unsigned long long)(ms / 1000));
            sl_err_hint(err, "see the server's log for what archive_command says");
            return SL_ERR_WAL_TIMEOUT;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50 * (long)SL_NS_PER_MS}, NULL);
    }
}

static int read_back(struct check *c, const char *object, const struct sl_pg_wal_name *name,
                     struct sl_err *err)
{
    struct sl_download *download = NULL;
    struct sl_object_info info;
    int rc =
        sl_download_open(c->repository.client, object, NULL, deadline_of(c), &download, &info, err);
    uint64_t done = 0;
    while (!rc) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        rc = sl_download_next(download, &block, &bytes, &count, deadline_of(c), err);
        if (rc <= 0)
            break;
        struct sl_pg_wal_header header;
        rc = done ? 0 : sl_pg_wal_header_decode(bytes, count, &header, err);
        if (!rc && !done)
            rc = sl_pg_wal_header_check(&header, name, info.length, c->server.system_id, err);
        done += count;
    }
    sl_download_close(download);
    return rc;
}

static void check_segment(struct check *c)
{
    struct sl_pg_wal_name name;
    char object[SL_NAME_MAX];
    struct sl_err err = {0};
    if (c->server.in_recovery || sl_option_bool(c->invocation->options, "dry-run")) {
        sl_findings_warn(&c->found, "wal segment", "not tried: %s",
                         c->server.in_recovery ? "the server is in recovery" : "dry run");
        return;
    }
    uint64_t began = sl_now_ns();
    int rc = switch_wal(c, &name, &err);
    if (!rc) {
        sl_pg_wal_object(c->server.system_id, &name, object, sizeof object);
        rc = wait_for(c, object, &err);
    }
    uint64_t arrived = sl_now_ns();
    if (!rc)
        rc = read_back(c, object, &name, &err);
    if (rc)
        sl_findings_failed(&c->found, "wal segment", &err);
    else
        sl_findings_ok(&c->found, "wal segment", "%s archived in %.2f s, read back in %.2f s",
                       name.text, (double)(arrived - began) / 1e9,
                       (double)(sl_now_ns() - arrived) / 1e9);
}

/* --- the command -------------------------------------------------------------------------------
 */

int sl_pg_check(struct sl_invocation *invocation, struct sl_err *err)
{
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    struct check *c = sl_calloc(1, sizeof *c);
    if (!c)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    c->invocation = invocation;
    c->found.invocation = invocation;
    bool server = check_server(c), repository = check_repository(c);
    if (server && repository) {
        struct sl_err mismatch = {0};
        if (sl_pg_repository_check(&c->repository, c->server.system_id, "the server", &mismatch))
            sl_findings_failed(&c->found, "stanza", &mismatch);
        else if (!c->found.first.code)
            check_segment(c);
    }
    if (repository)
        sl_pg_repository_close(&c->repository);
    sl_pg_db_close(c->db);
    int rc = sl_findings_end(&c->found, err);
    sl_free(c);
    return rc;
}
