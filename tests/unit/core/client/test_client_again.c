/* The client with a target that is restarted in the middle of what is small: questions, whole
 * objects. It is done again in a new session, and nobody notices. */
#include "core/base/alloc.h"
#include "tests/unit/core/client/fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool is_small(const struct sl_msg *msg)
{
    return msg->type == SL_MSG_COMMIT || msg->type == SL_MSG_GET || msg->type == SL_MSG_SPACE ||
           msg->type == SL_MSG_LIST;
}

static bool leaves(struct fake *fake)
{
    struct sl_msg answer = {.type = SL_MSG_BYE};
    answer.bye.reason = 1;
    fake->counter++;
    say(fake, &answer);
    return true;
}

static bool leaves_twice(struct fake *fake, const struct sl_msg *msg)
{
    if (is_small(msg) && fake->counter < 2)
        return leaves(fake);
    if (msg->type != SL_MSG_SPACE && msg->type != SL_MSG_LIST)
        return false;
    struct sl_msg answer = {.type = SL_MSG_SPACED};
    answer.spaced.request = msg->space.request;
    answer.spaced.free_bytes = 5;
    if (msg->type == SL_MSG_LIST) { /* an empty folder */
        answer = (struct sl_msg){.type = SL_MSG_LISTED};
        answer.listed.request = msg->list.request;
    }
    say(fake, &answer);
    return true;
}

static bool leaves_always(struct fake *fake, const struct sl_msg *msg)
{
    return is_small(msg) && leaves(fake);
}

static int try_put(struct sl_client *client, struct fake *fake, struct sl_err *err)
{
    struct sl_stored stored;
    (void)fake;
    return sl_client_put(client, "x", "abc", 3, SOON, &stored, err);
}

static int try_fetch(struct sl_client *client, struct fake *fake, struct sl_err *err)
{
    char *bytes = NULL;
    size_t count = 0;
    int rc = sl_client_fetch(client, "x", 4 * MiB, SOON, &bytes, &count, err);
    if (!rc) {
        assert_int_equal(count, fake->content_bytes);
        assert_memory_equal(bytes, fake->content, count);
    }
    sl_free(bytes);
    return rc;
}

static int try_space(struct sl_client *client, struct fake *fake, struct sl_err *err)
{
    uint64_t left = 0, total;
    (void)fake;
    int rc = sl_client_space(client, SOON, &left, &total, err);
    if (!rc)
        assert_int_equal(left, 5);
    return rc;
}

static int visit(void *arg, const struct sl_entry *entry)
{
    (void)arg, (void)entry;
    return SL_ERR_INTERNAL;
}

static int try_list(struct sl_client *client, struct fake *fake, struct sl_err *err)
{
    (void)fake;
    return sl_client_list(client, "folder", "", visit, NULL, SOON, err);
}

static int (*const tries[])(struct sl_client *client, struct fake *fake,
                            struct sl_err *err) = {try_put, try_fetch, try_space, try_list};

static int play(size_t which, fake_script script, struct sl_err *err)
{
    struct fake fake;
    struct sl_client_config config;
    struct sl_embedded embedded;
    fake_open(&fake, &config, &embedded, 3 * MiB);
    atomic_store(&fake.script, script);
    struct sl_client *client = open_must(&config);
    int rc = tries[which](client, &fake, err);
    assert_true(fake.counter >= 2);
    sl_client_close(client);
    fake_close(&fake);
    return rc;
}

static void target_leaves_twice__done_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        struct sl_err err = {0};
        if (play(i, leaves_twice, &err))
            fail_msg("%zu: %s", i, err.msg);
    }
}

static void target_leaves_always__closed_after_a_few(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        struct sl_err err;
        assert_int_equal(play(i, leaves_always, &err), SL_ERR_CLOSED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_leaves_twice__done_again),
        cmocka_unit_test(target_leaves_always__closed_after_a_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
