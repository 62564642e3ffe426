/* The client's whole life with every call failing in turn. */
#include "core/base/fault.h"
#include "tests/unit/core/client/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- every call failing ---------------------------------------------------------------------- */

/* A whole life of a client. With a call failing anywhere, on either side, it gives a code and
 * ends; nothing leaks and nothing hangs. */
static int life(const struct sl_client_config *config, const uint8_t *bytes, size_t count,
                struct sl_err *err)
{
    struct sl_client *client;
    struct sl_stored stored;
    struct sl_object_info info;
    struct listing listing = {0};
    struct damages damages = {0};
    struct sl_verify_progress total;
    int rc = sl_client_open(config, sl_deadline_in_ms(3000), &client, err);
    if (rc)
        return rc;
    rc = upload(client, "life/a", bytes, count, &stored, err);
    if (!rc)
        rc = fetch_and_compare(client, "life/a", bytes, count, err);
    if (!rc)
        rc = sl_client_stat(client, "life/a", sl_deadline_in_ms(3000), &info, err);
    MUST(rc); /* it is there, or a code */
    rc = rc == 1 ? 0 : rc;
    if (!rc)
        rc = sl_client_list(client, "life", NULL, note_entry, &listing, sl_deadline_in_ms(3000),
                            err);
    if (!rc)
        rc = sl_client_verify(client, "life", note_damage, note_step, &damages, &total, err);
    sl_client_close(client);
    return rc;
}

struct torture {
    const char *rule; /* "POINT:ERRNO" */
    unsigned step, most;
    unsigned least; /* lives that must fail; 0: it may be mended without anyone noticing */
};

/* Fails the Nth passing of the rule's point for N = 1, 1 + step, … `most`; for point "alloc" until
 * nothing is passed any more. Returns how many lives failed. */
static unsigned torture(const struct sl_client_config *config, const struct torture *torture,
                        const uint8_t *bytes, size_t count)
{
    unsigned failed = 0;
    for (unsigned n = 1; n <= torture->most; n += torture->step) {
        char rule[64];
        struct sl_err err = {0};
        snprintf(rule, sizeof rule, "%s@%u", torture->rule, n);
        uint64_t began = sl_now_ns();
        MUST(sl_fault_set(rule) == 0);
        int rc = life(config, bytes, count, &err);
        bool untouched = sl_fault_passed() < n;
        sl_fault_set(NULL);
        MUST((sl_now_ns() - began) / SL_NS_PER_S < 20);
        failed += rc != 0;
        if (rc && !(err.code == rc && err.msg[0]))
            print_error("%s: %d, %s\n", rule, rc, err.msg);
        if (rc)
            MUST(err.code == rc && err.msg[0]);
        if (untouched) {
            assert_int_equal(rc, 0);
            break;
        }
    }
    struct sl_err err;
    int rc = life(config, bytes, count, &err);
    if (rc)
        print_error("after %s: %s\n", torture->rule, err.msg);
    assert_int_equal(rc, 0);
    return failed;
}

static void tortures(bool listening, const struct torture *list, size_t count)
{
    struct world world;
    world_open(&world, &(struct world_options){
                           .listening = listening, .heartbeat_ms = 100, .dead_ms = 1000});
    world.config.slot_bytes_total = 4 * MiB;
    world.config.connect_ms = 1500;
    world.config.io_ms = 3000;
    world.config.lanes = 1;
    size_t bytes_count = 3 * MiB + 100;
    uint8_t *bytes = content_new(3, bytes_count, true);
    for (size_t i = 0; i < count; i++)
        assert_in_range(torture(&world.config, &list[i], bytes, bytes_count), list[i].least,
                        list[i].most);
    free(bytes);
    world_close(&world);
}

static void embedded__each_call_failing__code_and_no_leak(void **state)
{
    (void)state;
    static const struct torture list[] = {
        {"alloc:ENOMEM", 1, 2000, 1},         {"thread:EAGAIN", 1, 6, 1},
        {"control.send:EPIPE", 1, 40, 1},     {"control.recv:ECONNRESET", 1, 40, 1},
        {"control.socket:EMFILE", 1, 2, 1},   {"control.epoll:EMFILE", 1, 3, 1},
        {"loopback.eventfd:EMFILE", 1, 3, 1}, {"transport.domain:ENOMEM", 1, 2, 1},
        {"transport.region:ENOMEM", 1, 2, 1}};
    tortures(false, list, sizeof list / sizeof *list);
}

/* Not "*": a folder whose sync failed is not written to again until the store is opened anew. */
static void tcp__each_call_failing__code_and_no_leak(void **state)
{
    (void)state;
    static const struct torture list[] = {
        {"alloc:ENOMEM", 2, 2000, 1},        {"thread:EAGAIN", 1, 6, 1},
        {"control.send:EPIPE", 1, 40, 1},    {"control.recv:ECONNRESET", 1, 60, 1},

        {"control.epoll:EMFILE", 1, 3, 1},   {"net.socket:EMFILE", 1, 3, 1},
        {"net.connect:EACCES", 1, 3, 1},     {"transport.domain:ENOMEM", 1, 2, 1},
        {"transport.region:ENOMEM", 1, 2, 1}};
    tortures(true, list, sizeof list / sizeof *list);
}

/* A lane that breaks at any of its calls is replaced, and the work goes on. */
static void tcp__each_call_of_a_lane_failing__work_goes_on(void **state)
{
    (void)state;
    struct world world;
    world_open(&world,
               &(struct world_options){.listening = true, .heartbeat_ms = 100, .dead_ms = 1000});
    world.config.slot_bytes_total = 4 * MiB;
    size_t count = 3 * MiB + 100;
    uint8_t *bytes = content_new(3, count, false);
    unsigned failed = 0;
    for (unsigned n = 1; n <= 120; n += 4) {
        char rule[64];
        struct sl_err err;
        snprintf(rule, sizeof rule, "tcp.%s:ECONNRESET@%u", n % 8 == 1 ? "send" : "recv", n);
        MUST(sl_fault_set(rule) == 0);
        int rc = life(&world.config, bytes, count, &err);
        sl_fault_set(NULL);
        if (rc)
            print_error("%s: %s\n", rule, err.msg);
        failed += rc != 0;
    }
    assert_int_equal(failed, 0);
    free(bytes);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedded__each_call_failing__code_and_no_leak),
        cmocka_unit_test(tcp__each_call_failing__code_and_no_leak),
        cmocka_unit_test(tcp__each_call_of_a_lane_failing__work_goes_on),
    };
    return cmocka_run_group_tests(tests, no_sigpipe, NULL);
}
