/* check: do server, account, backup tool and repository work together, and could a binary log that
 * is archived bring the database to any point in time? Each finding is one line; the first that
 * failed gives the status. Nothing is changed, and no backup is made. */
#include "core/base/alloc.h"
#include "core/base/child.h"
#include "core/cli/findings.h"
#include "mysql/check_rights.h"
#include "mysql/commands.h"
#include "mysql/repository.h"
#include "mysql/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUE_BYTES 512
#define DAY_S       86400.0

/* What is asked of the server's settings. */
enum setting {
    LOG_BIN,
    FORMAT,
    SYNC_BINLOG,
    FLUSH_AT_COMMIT,
    SLAVE_UPDATES,
    REPLICA_UPDATES,
    CHECKSUM,
    EXPIRE_DAYS,
    EXPIRE_SECONDS,
    BINLOG_ENGINE,
    LOG_ARCHIVE,
    SETTINGS
};
static const char *const setting_names[SETTINGS] = {"log_bin",
                                                    "binlog_format",
                                                    "sync_binlog",
                                                    "innodb_flush_log_at_trx_commit",
                                                    "log_slave_updates",
                                                    "log_replica_updates",
                                                    "binlog_checksum",
                                                    "expire_logs_days",
                                                    "binlog_expire_logs_seconds",
                                                    "binlog_storage_engine",
                                                    "innodb_log_archive"};

struct check {
    const struct sl_invocation *invocation;
    struct sl_findings found;
    struct sl_my_repository repository;
    struct sl_my_db *db;
    struct sl_my_server server;
    char settings[SETTINGS][VALUE_BYTES]; /* "" where the server has no such thing */
    char filters[VALUE_BYTES];            /* of the binary log */
    unsigned sources;                     /* that it replicates from */
};

static sl_deadline deadline_of(const struct check *c)
{
    return sl_deadline_in_ms((uint64_t)sl_option_int(c->invocation->options, "timeout"));
}

/* --- asking ------------------------------------------------------------------------------------
 */

static int take_setting(void *arg, const struct sl_my_row *row)
{
    struct check *c = arg;
    for (size_t i = 0; i < SETTINGS; i++)
        if (row->values[0] && strcmp(row->values[0], setting_names[i]) == 0)
            snprintf(c->settings[i], VALUE_BYTES, "%.511s", row->values[1] ? row->values[1] : "");
    return 0;
}

static int ask_settings(struct check *c, struct sl_err *err)
{
    char sql[2048] = "SHOW GLOBAL VARIABLES WHERE Variable_name IN (''";
    for (size_t i = 0; i < SETTINGS; i++) {
        size_t used = strlen(sql);
        snprintf(sql + used, sizeof sql - used, ", '%s'", setting_names[i]);
    }
    strcat(sql, ")");
    return sl_my_db_query(c->db, sql, take_setting, c, err);
}

static int take_filters(void *arg, const struct sl_my_row *row)
{
    static const char *const names[] = {"Binlog_Do_DB", "Binlog_Ignore_DB"};
    static const char *const options[] = {"binlog_do_db", "binlog_ignore_db"};
    struct check *c = arg;
    for (size_t i = 0; i < 2; i++) {
        const char *value = sl_my_row_value(row, names[i]);
        size_t used = strlen(c->filters);
        if (*value)
            snprintf(c->filters + used, VALUE_BYTES - used, "%s%s = %.200s", used ? ", " : "",
                     options[i], value);
    }
    return 0;
}

static int count_source(void *arg, const struct sl_my_row *row)
{
    (void)row;
    struct check *c = arg;
    c->sources++;
    return 0;
}

static int take_count(void *arg, const struct sl_my_row *row)
{
    struct check *c = arg;
    c->sources += row->values[0] && atoi(row->values[0]) > 0;
    return 0;
}

/* Whether it is a replica. What tells it best needs a right of its own; what is left sees threads
 * that run, and what GTIDs say. */
static int ask_sources(struct check *c, struct sl_err *err)
{
    int rc =
        sl_my_db_query(c->db, c->server.mariadb ? "SHOW ALL SLAVES STATUS" : "SHOW REPLICA STATUS",
                       count_source, c, err);
    if (rc != SL_ERR_DENIED)
        return rc;
    memset(err, 0, sizeof *err);
    if (!c->server.mariadb) /* REPLICATION CLIENT is missing: the rights' line says so */
        return 0;
    return sl_my_db_query(c->db,
                          "SELECT (@@gtid_slave_pos <> '') + (SELECT COUNT(*) FROM "
                          "information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = "
                          "'Slaves_running' AND VARIABLE_VALUE > 0)",
                          take_count, c, err);
}

/* --- settings ----------------------------------------------------------------------------------
 */

static bool is_on(const char *value)
{
    return strcmp(value, "ON") == 0 || strcmp(value, "1") == 0;
}

static void impossible(struct check *c, const char *name, const char *why, const char *hint)
{
    struct sl_err err = {0};
    sl_err_set(&err, SL_ERR_DB_STATE, "%s", why);
    sl_err_hint(&err, "%s", hint);
    sl_findings_failed(&c->found, name, &err);
}

static void check_filters(struct check *c)
{
    char why[VALUE_BYTES + 100];
    struct sl_err err = {0};
    int rc =
        sl_my_db_query(c->db, c->server.mariadb ? "SHOW MASTER STATUS" : "SHOW BINARY LOG STATUS",
                       take_filters, c, &err);
    if (rc == SL_ERR_DENIED)
        return; /* the rights' line says so */
    if (rc) {
        sl_findings_failed(&c->found, "binlog filters", &err);
        return;
    }
    snprintf(why, sizeof why, "%s: changes are missing in the binary log", c->filters);
    if (c->filters[0])
        impossible(c, "binlog filters", why,
                   "remove it from the server's configuration and restart; filter on replicas "
                   "instead (replicate_do_db)");
    else
        sl_findings_ok(&c->found, "binlog filters", "none");
}

static void check_replica(struct check *c)
{
    const char *updates =
        c->settings[REPLICA_UPDATES][0] ? c->settings[REPLICA_UPDATES] : c->settings[SLAVE_UPDATES];
    struct sl_err err = {0};
    if (ask_sources(c, &err)) {
        sl_findings_failed(&c->found, "replica", &err);
        return;
    }
    if (!c->sources)
        sl_findings_ok(&c->found, "replica", "this server replicates from none");
    else if (is_on(updates))
        sl_findings_ok(&c->found, "replica", "its binary log has what it replicates");
    else
        impossible(c, "replica",
                   "it is a replica with log_slave_updates = OFF: what it replicates is missing in "
                   "its binary log",
                   "set log_slave_updates = ON (needs a restart), or archive the binary log of "
                   "its source");
}

static void check_durability(struct check *c)
{
    const char *sync = c->settings[SYNC_BINLOG], *flush = c->settings[FLUSH_AT_COMMIT];
    if (strcmp(sync, "1") == 0 && strcmp(flush, "1") == 0)
        sl_findings_ok(&c->found, "durability",
                       "sync_binlog = 1, innodb_flush_log_at_trx_commit = 1");
    else
        sl_findings_warn(&c->found, "durability",
                         "sync_binlog = %s, innodb_flush_log_at_trx_commit = %s: when this host "
                         "loses its power, commits that were acknowledged may be missing in the "
                         "binary log or in the tables; 1 and 1 prevent it",
                         sync, flush);
}

static void check_retention(struct check *c)
{
    double seconds = atof(c->settings[EXPIRE_SECONDS]);
    if (seconds <= 0)
        seconds = atof(c->settings[EXPIRE_DAYS]) * DAY_S;
    if (seconds > 0 && seconds < DAY_S)
        sl_findings_warn(&c->found, "binlog retention",
                         "the server removes binary logs after %.1f h: what was not archived by "
                         "then is lost",
                         seconds / 3600);
}

static void check_binlog(struct check *c)
{
    const char *format = c->settings[FORMAT];
    if (!is_on(c->settings[LOG_BIN])) {
        impossible(c, "binlog", "log_bin is OFF: only the moments of backups can be restored",
                   "set log_bin = binlog (needs a restart)");
        return;
    }
    if (strcmp(c->settings[BINLOG_ENGINE], "innodb") == 0) {
        impossible(c, "binlog",
                   "binlog_storage_engine = innodb: such a binary log cannot be archived yet",
                   "unset binlog_storage_engine (needs a restart)");
        return;
    }
    sl_findings_ok(&c->found, "binlog", "on, format %s, checksum %s", format,
                   c->settings[CHECKSUM]);
    if (strcmp(format, "STATEMENT") == 0)
        sl_findings_warn(&c->found, "binlog_format",
                         "STATEMENT: statements that do not always do the same may be replayed to "
                         "another result; MIXED or ROW are safe");
    check_filters(c);
    check_replica(c);
    check_durability(c);
    check_retention(c);
}

/* --- account, data directory, tool -------------------------------------------------------------
 */

static void check_rights(struct check *c)
{
    struct sl_my_rights rights;
    struct sl_err err = {0};
    int rc = sl_my_rights_ask(c->db, c->server.mariadb, &rights, &err);
    if (!rc && rights.missing[0]) {
        rc = sl_err_set(&err, SL_ERR_DENIED, "%s lacks %s", rights.account, rights.missing);
        sl_err_hint(&err, "GRANT %s ON *.* TO %s;", rights.missing, rights.account);
    }
    if (rc)
        sl_findings_failed(&c->found, "rights", &err);
    else
        sl_findings_ok(&c->found, "rights", "%s has all that backups and the binary log need",
                       rights.account);
}

static void check_folder(struct check *c)
{
    char file[VALUE_BYTES + 16];
    struct sl_err err = {0};
    const char *folder = c->server.data_folder;
    snprintf(file, sizeof file, "%s/mysql", folder);
    if (access(folder, R_OK | X_OK) || access(file, R_OK | X_OK)) {
        sl_err_sys(&err, SL_ERR_OPEN, errno, "\"%s\" cannot be read", folder);
        sl_err_hint(&err, "a backup runs on the server's host, as a user who may read its data "
                          "directory (often mysql, or root)");
        sl_findings_failed(&c->found, "data directory", &err);
        return;
    }
    if (is_on(c->settings[LOG_ARCHIVE]))
        impossible(c, "innodb_log_archive", "it is ON: mariadb-backup refuses such a server",
                   "SET GLOBAL innodb_log_archive = OFF, also in its configuration");
    sl_findings_ok(&c->found, "data directory", "%s", folder);
}

/* "10.11" of the text that follows `after`; "" when there is none. */
static void series_of(const char *text, const char *after, char series[16])
{
    const char *at = strstr(text, after);
    series[0] = '\0';
    if (!at)
        return;
    at += strlen(after);
    size_t major = strspn(at, "0123456789");
    if (!major || at[major] != '.')
        return;
    size_t length = major + 1 + strspn(at + major + 1, "0123456789");
    if (length < 16)
        snprintf(series, 16, "%.*s", (int)length, at);
}

static int tool_says(const char *tool, char *text, size_t room, sl_deadline deadline,
                     struct sl_err *err)
{
    const char *const words[] = {tool, "--version", NULL};
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    int rc = sl_child_start(words, SL_CHILD_OUT | SL_CHILD_ERR, &child, err);
    if (!rc)
        rc = sl_child_read(&child, text, room, deadline, err);
    sl_child_kill(&child);
    return rc;
}

/* A tool of another series reads neither the redo log nor the tables of this one safely. */
static void check_tool(struct check *c)
{
    const char *command = sl_option_string(c->invocation->options, "my-backup-command");
    command += strspn(command, " ");
    SL_CLEANUP_FREE char *tool = sl_strndup(command, strcspn(command, " "));
    char text[1024], tools[16], servers[16];
    struct sl_err err = {0};
    int rc = tool ? tool_says(tool, text, sizeof text, deadline_of(c), &err)
                  : sl_err_set(&err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc) {
        sl_err_hint(&err, "see --my-backup-command");
        sl_findings_failed(&c->found, "backup tool", &err);
        return;
    }
    series_of(text, "server ", tools);
    series_of(c->server.version, " ", servers);
    if (!tools[0]) {
        sl_findings_warn(&c->found, "backup tool", "%s: what version it is, is not known", tool);
    } else if (strcmp(tools, servers) != 0) {
        rc = sl_err_set(&err, SL_ERR_VERSION, "%s is of %s, the server is %s", tool, tools,
                        c->server.version);
        sl_err_hint(&err, "use the tool of the server's own version");
        sl_findings_failed(&c->found, "backup tool", &err);
    } else {
        sl_findings_ok(&c->found, "backup tool", "%s, of %s", tool, tools);
    }
}

/* --- the command -------------------------------------------------------------------------------
 */

static bool check_server(struct check *c)
{
    struct sl_err err = {0};
    if (sl_my_db_open(c->invocation->options, deadline_of(c), &c->db, &err) ||
        sl_my_server_describe(c->db, &c->server, &err) || ask_settings(c, &err)) {
        sl_findings_failed(&c->found, "server", &err);
        return false;
    }
    sl_findings_ok(&c->found, "server", "%s, %s", c->server.version, c->server.id);
    check_rights(c);
    check_folder(c);
    check_tool(c);
    check_binlog(c);
    return true;
}

static bool check_repository(struct check *c)
{
    struct sl_err err = {0};
    if (sl_my_repository_open(c->invocation, false, deadline_of(c), &c->repository, &err)) {
        sl_findings_failed(&c->found, "repository", &err);
        return false;
    }
    const struct sl_stanza *s = &c->repository.stanza;
    sl_findings_ok(&c->found, "repository", "stanza \"%s\", server %s", c->invocation->stanza,
                   s->lives[s->life_count - 1].id);
    sl_findings_connection(&c->found, c->repository.connection, deadline_of(c));
    return true;
}

int sl_my_check(struct sl_invocation *invocation, struct sl_err *err)
{
    SL_CLEANUP_FREE struct check *c = sl_calloc(1, sizeof *c);
    if (!c)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    c->invocation = c->found.invocation = invocation;
    bool server = check_server(c), repository = check_repository(c);
    struct sl_err mismatch = {0};
    if (server && repository &&
        sl_my_repository_check(&c->repository, c->server.id, invocation->stanza, &mismatch))
        sl_findings_failed(&c->found, "stanza", &mismatch);
    if (repository)
        sl_my_repository_close(&c->repository);
    sl_my_db_close(c->db);
    return sl_findings_end(&c->found, err);
}
