/* The client when lanes, sessions and targets are lost, and when it is told to stop: TCP on
 * 127.0.0.1 through a proxy that cuts and holds connections. */
#include "core/base/fault.h"
#include "tests/unit/core/client/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- loss ------------------------------------------------------------------------------------ */

static void cut_lanes_often(void *arg)
{
    for (int i = 0; i < 12; i++) {
        usleep(60000);
        proxy_cut_lanes(arg);
    }
}

static void tcp__lanes_cut_again_and_again__nobody_notices(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        struct world world;
        world_open(&world, &(struct world_options){.proxied = true});
        world.config.seal = sealed ? SL_SEAL_ON : SL_SEAL_OFF;
        world.config.slot_bytes_total = 8 * MiB;
        struct sl_client *client = world_connect(&world);
        unsigned redone = run_jobs(client, 4, 10, 6 * MiB, cut_lanes_often, world.proxy);
        assert_int_equal(redone, 0);
        assert_in_range(proxy_lanes(world.proxy), 5, 100);
        world_close(&world);
    }
}

static void tcp__lanes_cut_in_the_middle_of_blocks__nobody_notices(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.proxied = true});
    world.config.slot_bytes_total = 8 * MiB;
    struct sl_client *client = world_connect(&world);
    proxy_cut_after(world.proxy, 5 * MiB + 12345);
    unsigned redone = run_jobs(client, 3, 3, 8 * MiB, NULL, NULL);
    assert_int_equal(redone, 0);
    assert_in_range(proxy_lanes(world.proxy), 8, 1000);
    world_close(&world);
}

/* In the middle of the work, however slow it is. */
static void cut_sessions(void *arg)
{
    sl_deadline deadline = sl_deadline_in_ms(60000);
    for (int i = 0; i < 5; i++) {
        uint64_t before = proxy_carried(arg);
        while (proxy_carried(arg) < before + 3 * MiB && !sl_deadline_passed(deadline))
            usleep(1000);
        proxy_cut_all(arg);
    }
}

static void tcp__sessions_cut__work_done_over_is_whole(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.proxied = true});
    world.config.slot_bytes_total = 8 * MiB;
    struct sl_client *client = world_connect(&world);
    unsigned redone = run_jobs(client, 4, 8, 8 * MiB, cut_sessions, world.proxy);
    assert_in_range(redone, 1, 1000);
    world_close(&world);
}

static void tcp__target_restarts__next_call_begins_anew(void **state)
{
    (void)state;
    struct world world;
    struct world_options options = {.listening = true};
    world_open(&world, &options);
    uint16_t port = sl_target_port(world.target);
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_stored stored;
    struct sl_upload *up;
    assert_int_equal(sl_upload_begin(client, "x", 0, SOON, &up, &err), 0);
    sl_target_stop(world.target, 1000);
    assert_int_equal(sl_upload_commit(up, 0, SOON, &stored, &err), SL_ERR_CLOSED);
    /* nobody there: tries until the deadline */
    uint64_t began = sl_now_ns();
    assert_int_equal(sl_client_put(client, "y", "1", 1, sl_deadline_in_ms(700), &stored, &err),
                     SL_ERR_CONNECT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 300, 5000);
    world_start(&world, &options, port);
    assert_int_equal(sl_client_put(client, "y", "1", 1, SOON, &stored, &err), 0);
    world_close(&world);
}

static void tcp__another_repository_behind_the_name__refused(void **state)
{
    (void)state;
    struct world a, b;
    struct world_options options = {.proxied = true};
    world_open(&a, &options);
    world_open(&b, &options);
    /* one authority for both */
    sl_target_stop(b.target, 0);
    struct sl_tls *theirs = b.server;
    b.server = certs_tls_must(&a.certs, "backup1", true);
    sl_tls_free(theirs);
    world_start(&b, &options, 0);
    struct sl_client *client = world_connect(&a);
    struct sl_err err;
    proxy_target(a.proxy, b.host);
    proxy_cut_all(a.proxy);
    struct sl_stored stored;
    int rc;
    do /* the loss may be noticed by this call */
        rc = sl_client_put(client, "y", "1", 1, SOON, &stored, &err);
    while (rc == SL_ERR_CLOSED);
    assert_int_equal(rc, SL_ERR_REPO);
    assert_non_null(strstr(err.hint, "one repository"));
    world_close(&a);
    world_close(&b);
}

static void tcp__first_host_is_down__second_is_used(void **state)
{
    (void)state;
    struct world world;
    char port[8], dead[32];
    int listener = listen_local(port);
    snprintf(dead, sizeof dead, "127.0.0.1:%s", port);
    close(listener);
    world_open(&world, &(struct world_options){.listening = true});
    const char *hosts[] = {dead, world.host, NULL};
    world.config.hosts = hosts;
    struct sl_client *client = world_connect(&world);
    struct sl_client_info info;
    sl_client_info(client, &info);
    assert_string_equal(info.host, world.host);
    world_close(&world);
}

static void open__refusals__say_why_and_do_not_wait(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.listening = true});
    const char *nonsense[] = {":", NULL};
    struct sl_client_config config = world.config;
    struct sl_client *client;
    struct sl_err err;
    uint64_t began = sl_now_ns();
    config.stanza = "forbidden";
    assert_int_equal(sl_client_open(&config, SOON, &client, &err), SL_ERR_DENIED);
    assert_non_null(strstr(err.msg, "db1"));
    config.stanza = "main";
    config.transport = SL_TRANSPORT_RDMA;
    assert_int_equal(sl_client_open(&config, SOON, &client, &err), SL_ERR_UNSUPPORTED);
    config.transport = SL_TRANSPORT_AUTO;
    config.tls_name = "other";
    assert_int_equal(sl_client_open(&config, SOON, &client, &err), SL_ERR_CRYPTO);
    config.tls_name = NULL;
    config.hosts = nonsense;
    assert_int_equal(sl_client_open(&config, SOON, &client, &err), SL_ERR_CONFIG);
    config.hosts = NULL;
    assert_int_equal(sl_client_open(&config, SOON, &client, &err), SL_ERR_CONFIG);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 0, 5000);
    world_close(&world);
}

/* --- time ------------------------------------------------------------------------------------ */

static void tcp__target_stops_answering__dead_in_time(void **state)
{
    (void)state;
    struct world world;
    world_open(&world,
               &(struct world_options){.proxied = true, .heartbeat_ms = 100, .dead_ms = 500});
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_upload *up;
    assert_int_equal(sl_upload_begin(client, "x", 0, SOON, &up, &err), 0);
    proxy_hold(world.proxy, true);
    uint64_t began = sl_now_ns();
    struct sl_stored stored;
    assert_int_equal(sl_upload_commit(up, 0, SOON, &stored, &err), SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 300, 5000);
    assert_non_null(strstr(err.msg, "heard"));
    /* and no call outlives its deadline */
    began = sl_now_ns();
    assert_int_equal(sl_client_put(client, "y", "1", 1, sl_deadline_in_ms(600), &stored, &err),
                     SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 300, 4000);
    proxy_hold(world.proxy, false);
    assert_int_equal(sl_client_put(client, "y", "1", 1, SOON, &stored, &err), 0);
    world_close(&world);
}

static void tcp__idle_connection__stays(void **state)
{
    (void)state;
    struct world world;
    world_open(&world,
               &(struct world_options){.listening = true, .heartbeat_ms = 50, .dead_ms = 300});
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_upload *up;
    struct sl_stored stored;
    assert_int_equal(sl_upload_begin(client, "x", 0, SOON, &up, &err), 0);
    usleep(1500000);
    assert_int_equal(sl_upload_commit(up, 0, SOON, &stored, &err), 0);
    world_close(&world);
}

static void tcp__no_lane_any_more__session_ends_and_says_so(void **state)
{
    (void)state;
    struct world world;
    world_open(&world,
               &(struct world_options){.proxied = true, .heartbeat_ms = 50, .dead_ms = 200});
    struct sl_client *client = world_connect(&world);
    struct sl_err err;
    struct sl_upload *up;
    struct sl_stored stored;
    uint8_t *bytes = content_new(9, 2 * MiB, false);
    assert_int_equal(sl_upload_begin(client, "x", 0, SOON, &up, &err), 0);
    proxy_refuse(world.proxy, true, true);
    proxy_cut_lanes(world.proxy);
    assert_int_equal(sl_upload_write(up, bytes, 2 * MiB, &err), 0);
    uint64_t began = sl_now_ns();
    assert_int_equal(sl_upload_commit(up, 0, SOON, &stored, &err), SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 300, 5000);
    assert_non_null(strstr(err.msg, "no lane"));
    proxy_refuse(world.proxy, true, false);
    assert_int_equal(upload(client, "x", bytes, 2 * MiB, &stored, &err), 0);
    free(bytes);
    world_close(&world);
}

/* --- cancel ---------------------------------------------------------------------------------- */

static void *cancel_soon(void *arg)
{
    usleep(150000);
    sl_client_cancel(arg);
    return NULL;
}

static void cancel__while_waiting__returns_at_once(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.proxied = true});
    struct proxy *proxy = world.proxy;
    for (int connecting = 0; connecting < 2; connecting++) {
        struct sl_client *client = open_must(&world.config);
        struct sl_err err;
        struct sl_stored stored;
        pthread_t thread;
        if (connecting)
            proxy_refuse(proxy, false, true);
        else
            proxy_hold(proxy, true);
        if (connecting)
            proxy_cut_all(proxy);
        uint64_t began = sl_now_ns();
        MUST(pthread_create(&thread, NULL, cancel_soon, client) == 0);
        int rc;
        do
            rc = sl_client_put(client, "y", "1", 1, SOON, &stored, &err);
        while (rc == SL_ERR_CLOSED);
        assert_int_equal(rc, SL_ERR_CANCELLED);
        assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 100, 3000);
        pthread_join(thread, NULL);
        assert_int_equal(sl_client_put(client, "y", "1", 1, SOON, &stored, &err), SL_ERR_CANCELLED);
        sl_client_close(client);
        proxy_hold(proxy, false);
        proxy_refuse(proxy, false, false);
        proxy_cut_all(proxy);
    }
    world_close(&world);
}

/* The threads that make lanes wait for the target, too. */
static void close__while_lanes_are_made__at_once(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, &(struct world_options){.proxied = true});
    struct sl_client *client = open_must(&world.config);
    proxy_hold(world.proxy, true);
    proxy_cut_lanes(world.proxy);
    usleep(500000); /* the first attempt comes after 100 ms, and waits 5 s for the target's hello */
    uint64_t began = sl_now_ns();
    sl_client_close(client);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 0, 2500);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp__lanes_cut_again_and_again__nobody_notices),
        cmocka_unit_test(tcp__lanes_cut_in_the_middle_of_blocks__nobody_notices),
        cmocka_unit_test(tcp__sessions_cut__work_done_over_is_whole),
        cmocka_unit_test(tcp__target_restarts__next_call_begins_anew),
        cmocka_unit_test(tcp__another_repository_behind_the_name__refused),
        cmocka_unit_test(tcp__first_host_is_down__second_is_used),
        cmocka_unit_test(open__refusals__say_why_and_do_not_wait),
        cmocka_unit_test(tcp__target_stops_answering__dead_in_time),
        cmocka_unit_test(tcp__idle_connection__stays),
        cmocka_unit_test(tcp__no_lane_any_more__session_ends_and_says_so),
        cmocka_unit_test(cancel__while_waiting__returns_at_once),
        cmocka_unit_test(close__while_lanes_are_made__at_once),
    };
    return cmocka_run_group_tests(tests, no_sigpipe, NULL);
}
