/* The client's whole life with every call failing in turn. */
#include "core/base/fault.h"
#include "tests/unit/core/client/world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct listing {
    unsigned count, stop_at;
    char last[256];
    bool ordered;
};

static int visit(void *arg, const struct sl_entry *entry)
{
    struct listing *listing = arg;
    listing->ordered &= strcmp(listing->last, entry->name) < 0;
    strcpy(listing->last, entry->name);
    listing->count++;
    return listing->stop_at == listing->count ? SL_ERR_CANCELLED : 0;
}

struct damages {
    unsigned count;
    char name[512];
    int code;
    unsigned steps;
};

static void note_damage(void *arg, const char *name, int code, const char *text)
{
    struct damages *damages = arg;
    damages->count++;
    damages->code = code;
    snprintf(damages->name, sizeof damages->name, "%s", name);
    MUST(text[0]);
}

static void note_step(void *arg, const struct sl_verify_progress *progress)
{
    (void)progress;
    ((struct damages *)arg)->steps++;
}

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
        rc = sl_client_stat(client, "life/a", sl_deadline_in_ms(3000), &info, err) == 1
                 ? 0
                 : SL_ERR_INTERNAL;
    if (!rc)
        rc = sl_client_list(client, "life", NULL, visit, &listing, sl_deadline_in_ms(3000), err);
    if (!rc)
        rc = sl_client_verify(client, "life", note_damage, note_step, &damages, &total, err);
    sl_client_close(client);
    return rc;
}

static void torture(bool listening, const char *rule_start, unsigned step, unsigned most)
{
    struct world world;
    world_open(&world, &(struct world_options){
                           .listening = listening, .heartbeat_ms = 100, .dead_ms = 400});
    const char *hosts[] = {world.host, NULL};
    struct sl_client_config config = config_for(&world, listening ? hosts : NULL);
    config.slot_bytes_total = 4 * MiB;
    config.connect_ms = 1500;
    config.io_ms = 3000;
    config.lanes = 1;
    size_t count = 3 * MiB + 100;
    uint8_t *bytes = content_new(3, count, true);
    unsigned failed = 0, n = 1;
    for (; n < most; n += step) {
        char rule[64];
        struct sl_err err;
        snprintf(rule, sizeof rule, "%s@%u", rule_start, n);
        uint64_t began = sl_now_ns();
        sl_fault_set(rule);
        int rc = life(&config, bytes, count, &err);
        bool untouched = sl_fault_passed() < n;
        sl_fault_set(NULL);
        failed += rc != 0;
        MUST((sl_now_ns() - began) / SL_NS_PER_S < 20);
        if (untouched) {
            if (rc)
                print_error("%u: %s\n", n, err.msg);
            assert_int_equal(rc, 0);
            break;
        }
    }
    assert_true(failed > 5);
    free(bytes);
    struct sl_err err;
    uint8_t *more = content_new(4, MiB, false);
    assert_int_equal(life(&config, more, 0, &err) == 0, false); /* other content for the name */
    free(more);
    world_close(&world);
}

static void embedded__each_allocation_failing__code_and_no_leak(void **state)
{
    (void)state;
    torture(false, "alloc:ENOMEM", 1, 2000);
}

static void tcp__each_call_failing__code_and_no_leak(void **state)
{
    (void)state;
    torture(true, "*:ECONNRESET", 3, 3000);
}

static int no_sigpipe(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedded__each_allocation_failing__code_and_no_leak),
        cmocka_unit_test(tcp__each_call_failing__code_and_no_leak),
    };
    return cmocka_run_group_tests(tests, no_sigpipe, NULL);
}
