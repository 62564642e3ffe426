/* The lines of a check, and those about the way to the repository, which are the same for every
 * engine. */
#include "core/cli/findings.h"

#include "core/base/json.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SKEW_MS_MOST      5000
#define CERTIFICATE_DAYS  30
#define SPACE_PERCENT_MIN 5
#define TEXT_BYTES        1024

static void say(struct sl_findings *f, const char *name, const char *verdict, const char *text)
{
    if (!f->list)
        f->list = json_array();
    if (!f->invocation->json)
        printf("%-22s %-6s %s\n", name, verdict, text);
    json_array_append_new(f->list, json_pack("{s:s,s:s,s:o}", "name", name, "result", verdict,
                                             "text", sl_json_text(text)));
}

void sl_findings_ok(struct sl_findings *f, const char *name, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    say(f, name, "ok", text);
}

void sl_findings_warn(struct sl_findings *f, const char *name, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    say(f, name, "warn", text);
}

void sl_findings_failed(struct sl_findings *f, const char *name, const struct sl_err *err)
{
    say(f, name, "FAILED", err->msg);
    if (err->hint[0] && !f->invocation->json)
        printf("%-22s        hint: %s\n", "", err->hint);
    if (!f->first.code)
        f->first = *err;
}

int sl_findings_end(struct sl_findings *f, struct sl_err *err)
{
    if (f->list)
        json_object_set_new(f->invocation->result, "checks", f->list);
    f->list = NULL;
    return f->first.code ? sl_err_copy(err, &f->first) : 0;
}

/* --- the way to the repository -----------------------------------------------------------------
 */

static void check_transport(struct sl_findings *f, struct sl_client *client)
{
    struct sl_client_info info;
    char lane[256] = "";
    sl_client_info(client, &info);
    const struct sl_lane_info *l = &info.lane;
    if (l->device[0])
        snprintf(lane, sizeof lane, ", device %s port %u, %s%s%s, MTU %u", l->device, l->port,
                 l->link_layer, l->gid_type[0] ? ", " : "", l->gid_type, l->mtu);
    sl_findings_ok(f, "transport", "%s (%s)%s, %s to %s, depth %u, %u lanes, %u slots, %s",
                   l->transport, info.transport_why, lane, l->local, l->remote, l->depth,
                   info.lanes, info.slots, info.sealed ? "sealed" : "not sealed");
    if (info.rdma_note[0])
        sl_findings_ok(f, "rdma of the target", "%s", info.rdma_note);
    sl_findings_ok(f, "target", "%s, %s, store %s", info.host, info.software, info.store);
    if (llabs(info.clock_skew_ms) > SKEW_MS_MOST)
        sl_findings_warn(f, "clocks", "the target's clock differs by %.1f s",
                         (double)info.clock_skew_ms / 1000.0);
    else
        sl_findings_ok(f, "clocks", "the target's differs by %lld ms",
                       (long long)info.clock_skew_ms);
    json_object_set_new(f->invocation->result, "transport",
                        json_pack("{s:s,s:s,s:s,s:i,s:s,s:s,s:i,s:s,s:s,s:i,s:i,s:i,s:b,s:I}",
                                  "kind", l->transport, "why", info.transport_why, "device",
                                  l->device, "port", (int)l->port, "link_layer", l->link_layer,
                                  "gid_type", l->gid_type, "mtu", (int)l->mtu, "local", l->local,
                                  "remote", l->remote, "depth", (int)l->depth, "lanes",
                                  (int)info.lanes, "slots", (int)info.slots, "sealed", info.sealed,
                                  "clock_skew_ms", (json_int_t)info.clock_skew_ms));
}

static void check_certificate(struct sl_findings *f, const struct sl_connection *connection)
{
    int days = sl_connection_certificate_days(connection);
    if (days == INT_MAX)
        return;
    json_object_set_new(f->invocation->result, "certificate_days", json_integer(days));
    if (days < CERTIFICATE_DAYS)
        sl_findings_warn(f, "certificate", "ends in %d days", days);
    else
        sl_findings_ok(f, "certificate", "%d days left", days);
}

static void check_space(struct sl_findings *f, struct sl_client *client, sl_deadline deadline)
{
    uint64_t free_bytes, total;
    char a[32], b[32];
    struct sl_err err = {0};
    if (sl_client_space(client, deadline, &free_bytes, &total, &err)) {
        sl_findings_failed(f, "space", &err);
        return;
    }
    sl_bytes_text(free_bytes, a, sizeof a);
    sl_bytes_text(total, b, sizeof b);
    if (total && free_bytes / (total / 100 + 1) < SPACE_PERCENT_MIN)
        sl_findings_warn(f, "space", "only %s of %s free in the repository", a, b);
    else
        sl_findings_ok(f, "space", "%s of %s free in the repository", a, b);
}

void sl_findings_connection(struct sl_findings *f, struct sl_connection *connection,
                            sl_deadline deadline)
{
    struct sl_client *client = sl_connection_client(connection);
    check_transport(f, client);
    check_certificate(f, connection);
    check_space(f, client, deadline);
}
