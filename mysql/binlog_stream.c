/* Following the server: the replication protocol's stream, event by event, into the sender.
 * Connector/C connects, logs in and cuts the stream into packets; its own mariadb_rpl_fetch() is
 * not used: it misreads file names, drops events and acknowledges before anybody has stored
 * anything (measured with 3.3.19 and 3.3.20). */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/stop.h"
#include "mysql/binlog_internal.h"

#include <inttypes.h>
#include <mysql.h>

#include <mariadb_rpl.h>
#include <stdio.h>
#include <string.h>

#define SEND_ANNOTATE 2u /* without it events are left out, and files differ */
#define SEMI_SYNC_ACK 0xef

/* MariaDB's and MySQL's names for the same; each ignores the other's. Heartbeats each second, so
 * that silence is death, and a stop is seen. */
static const char session_variables[] =
    "SET @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32', "
    "@master_heartbeat_period=1000000000, @source_heartbeat_period=1000000000, "
    "@mariadb_slave_capability=4";
static const char semi_sync_variables[] = "SET @rpl_semi_sync_slave=1, @rpl_semi_sync_replica=1";

struct follower {
    struct sl_my_archiver *a;
    struct sl_my_db *db;
    MYSQL *mysql; /* its own */
    MARIADB_RPL *rpl;
    struct sl_my_sender *sender;
    const struct sl_my_binlog_start *start;
    struct sl_my_event_state state;
    char file[SL_MY_BINLOG_NAME_MAX]; /* that passes; "": the server has not said yet */
    uint64_t position;                /* in it */
    uint64_t have;                    /* … the archive has everything before it */
    bool skipping;                    /* its end was archived before: nothing of it is due */
    bool formatted;                   /* its format description has come */
    bool past_last;                   /* the file that was the last when we began, or later */
    bool done;
    uint64_t events;
};

/* --- asking ------------------------------------------------------------------------------------
 */

static int ask(struct follower *f, uint64_t position, struct sl_err *err)
{
    static const char host[] = "sluice";
    int rc = sl_my_db_query(f->db, session_variables, NULL, NULL, err);
    if (!rc && f->a->semi_sync)
        rc = sl_my_db_query(f->db, semi_sync_variables, NULL, NULL, err);
    if (rc)
        return rc;
    f->rpl = mariadb_rpl_init(f->mysql);
    if (!f->rpl)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    mariadb_rpl_optionsv(f->rpl, MARIADB_RPL_FILENAME, f->start->file, (size_t)0);
    mariadb_rpl_optionsv(f->rpl, MARIADB_RPL_START, (unsigned long)position);
    mariadb_rpl_optionsv(f->rpl, MARIADB_RPL_SERVER_ID, f->a->replica_id);
    mariadb_rpl_optionsv(f->rpl, MARIADB_RPL_FLAGS, SEND_ANNOTATE);
    mariadb_rpl_optionsv(f->rpl, MARIADB_RPL_HOST, host);
    if (!mariadb_rpl_open(f->rpl))
        return 0;
    return sl_err_set(err, sl_my_db_code(f->db),
                      "the server does not send its binary log from %s, position %" PRIu64 ": %s",
                      f->start->file, position, mysql_error(f->mysql));
}

/* --- events ------------------------------------------------------------------------------------
 */

static int other_file(struct follower *f, const char *what, struct sl_err *err)
{
    struct sl_my_archiver *a = f->a;
    a->new_history = true;
    snprintf(a->why_new, sizeof a->why_new,
             "the server's %s is another file than the archived one: %s", f->file, what);
    return sl_err_set(err, SL_ERR_BUSY, "%s", a->why_new); /* retried, with a new history */
}

static int on_file(struct follower *f, const struct sl_my_event *event, struct sl_err *err)
{
    if (strcmp(event->file, f->file) == 0) {
        f->position = event->position;
        return 0;
    }
    if (f->file[0]) {
        int rc = f->skipping ? 0 : sl_my_sender_seal(f->sender, err);
        if (rc)
            return rc;
        f->have = 0;
        f->skipping = false;
    } else if (strcmp(event->file, f->start->file) != 0) {
        return sl_err_set(err, SL_ERR_PROTOCOL, "the server begins with %s, not with %s",
                          event->file, f->start->file);
    } else {
        f->have = f->start->begun ? f->start->position : 0;
        f->skipping = f->start->sealed;
    }
    snprintf(f->file, sizeof f->file, "%s", event->file);
    f->position = event->position;
    f->formatted = false;
    f->past_last |= strcmp(f->file, f->start->last) == 0;
    f->done = f->a->once && f->past_last;
    if (f->position > SL_MY_BINLOG_START && !f->have)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the server sends %s from position %" PRIu64 " on",
                          f->file, f->position);
    sl_log(SL_LOG_DETAIL, "binlog", "%s from position %" PRIu64, f->file, f->position);
    return 0;
}

/* Is the file on the server the one in the archive? Its format description says when it was made.
 */
static int compare(struct follower *f, const struct sl_my_event *event, struct sl_err *err)
{
    uint32_t created, server_id;
    int rc = sl_my_about_read(f->a, f->file, &created, &server_id, err);
    if (rc)
        return rc;
    if (created == event->created && server_id == event->server_id)
        return 0;
    return other_file(f, "it was made at another time, or by another server", err);
}

static int begin(struct follower *f, const struct sl_my_event *event, struct sl_err *err)
{
    char *about = sl_my_about(f->file, event);
    if (!about)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_my_sender_begin(f->sender, f->file, f->past_last, about, err);
    sl_free(about);
    return rc ? rc : sl_my_sender_put(f->sender, SL_MY_BINLOG_MAGIC, SL_MY_BINLOG_START, err);
}

/* The sender's errors; one of them means that the name is another file's. */
static int sent(struct follower *f, int rc, struct sl_err *err)
{
    if (rc == SL_ERR_EXISTS)
        return other_file(f, "there is other content under its name", err);
    return rc;
}

static int acknowledge(struct follower *f, struct sl_err *err)
{
    char bytes[8 + SL_MY_BINLOG_NAME_MAX] = {0};
    size_t length = strlen(f->file);
    int rc = sl_my_sender_wait(f->sender, sl_deadline_in_ms(f->a->timeout_ms), err);
    if (rc)
        return rc;
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(f->position >> 8 * i);
    memcpy(bytes + 8, f->file, length);
    if (f->mysql->methods->db_command(f->mysql, (enum enum_server_command)SEMI_SYNC_ACK, bytes,
                                      8 + length, 1, NULL))
        return sl_err_set(err, SL_ERR_CLOSED, "could not acknowledge to the server: %s",
                          mysql_error(f->mysql));
    return 0;
}

static int on_content(struct follower *f, const struct sl_my_event *event, struct sl_err *err)
{
    uint64_t end = f->position + event->count;
    bool first = event->kind == SL_MY_EVENT_FORMAT && f->position == SL_MY_BINLOG_START;
    if (!f->file[0] || (!first && !f->formatted))
        return sl_err_set(err, SL_ERR_PROTOCOL, "an event before its file's format description");
    /* 0: MariaDB 11.4 and later say nothing of events that came through a transaction's cache */
    if (event->next_position && event->next_position != (uint32_t)end)
        return sl_err_set(err, SL_ERR_PROTOCOL,
                          "an event of %s ends at %u, and not at %" PRIu64 ": something is missing",
                          f->file, event->next_position, end);
    int rc = 0;
    if (first && !f->have && !f->skipping)
        rc = begin(f, event, err);
    else if (first)
        rc = compare(f, event, err);
    f->formatted = true;
    if (!rc && end > f->have && !f->skipping) {
        if (f->position < f->have)
            return sl_err_set(err, SL_ERR_PROTOCOL,
                              "an event of %s lies across position %" PRIu64
                              ", where the archive ends",
                              f->file, f->have);
        rc = sl_my_sender_put(f->sender, event->bytes, event->count, err);
    }
    f->position = end;
    if (!rc && event->wants_ack && !f->skipping)
        rc = acknowledge(f, err);
    return sent(f, rc, err);
}

static int on_event(struct follower *f, const struct sl_my_event *event, struct sl_err *err)
{
    switch (event->kind) {
    case SL_MY_EVENT_NOTHING:
        return 0;
    case SL_MY_EVENT_FILE:
        return sent(f, on_file(f, event, err), err);
    case SL_MY_EVENT_REPEATED:
        f->formatted = true;
        return compare(f, event, err);
    default:
        f->events++;
        return on_content(f, event, err);
    }
}

/* --- the loop ----------------------------------------------------------------------------------
 */

/* One packet; 1 when there was none, because the server ends. */
static int step(struct follower *f, struct sl_err *err)
{
    struct sl_my_event event;
    unsigned long count = mysql_net_read_packet(f->mysql);
    const uint8_t *packet = f->mysql->net.read_pos;
    if (count == packet_error || !count)
        return sl_err_set(err, sl_my_db_code(f->db), "the stream of events ended: %s",
                          mysql_error(f->mysql));
    if (count < 9 && packet[0] == 0xfe)
        return 1;
    int rc = sl_my_event_parse(packet + 1, count - 1, &f->state, &event, err);
    return rc ? rc : on_event(f, &event, err);
}

static int run(struct follower *f, struct sl_err *err)
{
    int rc = 0;
    while (!rc && !f->done) {
        rc = sl_stop_check(err);
        if (!rc)
            rc = sent(f, sl_my_sender_check(f->sender, err), err);
        if (!rc)
            rc = step(f, err);
    }
    if (rc == 1)
        return sl_err_set(err, SL_ERR_CLOSED, "the server is shutting down");
    if (rc)
        return rc;
    return sent(f, sl_my_sender_wait(f->sender, sl_deadline_in_ms(UINT32_MAX), err), err);
}

int sl_my_binlog_follow(struct sl_my_archiver *a, struct sl_my_db *db,
                        struct sl_my_binlog_start *start, bool *ret_progress, struct sl_err *err)
{
    struct follower f = {.a = a,
                         .db = db,
                         .mysql = sl_my_db_handle(db),
                         .start = start,
                         .state.semi_sync = a->semi_sync};
    char folder[SL_NAME_MAX];
    sl_my_archive_folder(a, folder);
    struct sl_my_sender_config config = {.client = a->client,
                                         .folder = folder,
                                         .timeout_ms = a->timeout_ms,
                                         .grow = start->grow,
                                         .file = start->file};
    start->grow = NULL;
    int rc = sl_my_sender_new(&config, &f.sender, err);
    if (rc)
        return rc;
    bool too_far = start->position > UINT32_MAX; /* the protocol has 32 bits: passes it again */
    rc = ask(&f, too_far ? SL_MY_BINLOG_START : start->position, err);
    if (!rc)
        rc = run(&f, err);
    a->sealed += sl_my_sender_sealed(f.sender);
    *ret_progress = f.events > 0;
    sl_my_sender_free(f.sender);
    if (f.rpl)
        mariadb_rpl_close(f.rpl);
    return rc;
}
