/* A whole upload and download, with the Nth thing that can fail in the target's process failing,
 * for N = 1, 2, … until nothing is left to fail: no hang, no leak (AddressSanitizer's business), no
 * half object, and what was said to be stored is there. The client is a process of its own. */
#include "core/base/fault.h"
#include "tests/unit/core/target/scripted.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The client's process: waits for the target's port, puts and reads. */
static void be_client(struct world *world, int port_fd, const char *name)
{
    struct script script;
    struct content content = content_new(world, 5, 2 * MiB + 17, false);
    if (read(port_fd, world->port, sizeof world->port) != sizeof world->port)
        _exit(SCRIPT_REFUSED);
    script_open(&script, world,
                &(struct script_options){.listening = true, .tolerant = true, .lanes = 1});
    script_write(&script, 1, name, &content);
    if (script_outcome(&script, 1, NULL) != 0)
        _exit(SCRIPT_REFUSED);
    if (script_read(&script, 2, name, &content) != 0)
        _exit(SCRIPT_REFUSED);
    _exit(0);
}

static int run_target(struct world *world, const char *rule, int port_fd, pid_t client)
{
    struct sl_target_config config = {
        .repo = world->repo, .pool_bytes = 4 * MiB, .workers = 1, .tls = world->server};
    struct sl_err err = {0};
    int status;
    config.listen_address = "127.0.0.1";
    must(sl_fault_set(rule) == 0);
    int rc = sl_target_start(&config, &world->target, &err);
    if (rc) {
        assert_true(err.code == rc && err.msg[0]);
        world->target = NULL;
    } else {
        snprintf(world->port, sizeof world->port, "%u", sl_target_port(world->target));
        must(write(port_fd, world->port, sizeof world->port) == sizeof world->port);
    }
    close(port_fd);
    must(waitpid(client, &status, 0) == client);
    if (world->target)
        world_stop(world, 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_repository(struct world *world, const char *name, bool stored)
{
    char full[64];
    struct sl_object *object;
    struct sl_repo_verify verify = {0};
    snprintf(full, sizeof full, "main/%s", name);
    int rc = sl_object_open(world->repo, full, &object, NULL);
    if (!rc)
        sl_object_close(object);
    assert_true(rc == 0 || (rc == SL_ERR_NOT_FOUND && !stored));
    if (rc == 0) {
        assert_int_equal(sl_repo_verify(world->repo, full, &verify, NULL), 0);
        assert_int_equal(verify.damaged, 0);
    }
}

static void torture(const char *action)
{
    struct world world;
    unsigned succeeded = 0, nth;
    bool untouched = false;
    world_make(&world, true);
    for (nth = 1; !untouched && nth < 5000; nth++) {
        char rule[64], name[32];
        int fds[2];
        snprintf(rule, sizeof rule, "%s@%u", action, nth);
        snprintf(name, sizeof name, "o%u", nth);
        must(pipe(fds) == 0);
        pid_t client = fork();
        must(client >= 0);
        if (client == 0) {
            close(fds[1]);
            be_client(&world, fds[0], name);
        }
        close(fds[0]);
        int result = run_target(&world, rule, fds[1], client);
        if (result != 0 && result != SCRIPT_REFUSED)
            fprintf(stderr, "%s: client ended with %d\n", rule, result);
        assert_true(result == 0 || result == SCRIPT_REFUSED);
        untouched = sl_fault_passed() < nth;
        sl_fault_set(NULL);
        world_reopen(&world);
        check_repository(&world, name, result == 0);
        succeeded += result == 0;
        if (untouched)
            assert_int_equal(result, 0);
    }
    assert_true(untouched);
    printf("%s: %u times, %u of them the client did not even notice\n", action, nth - 1, succeeded);
    world_close(&world);
}

static void torture__anything_fails__clean_failure(void **state)
{
    (void)state;
    torture("*:EIO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torture__anything_fails__clean_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
