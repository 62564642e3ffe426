/* An engine for tests of the program: commands that show what they were given, fail as told, wait.
 */
#include "core/plugin/engine.h"
#include "core/base/progress.h"
#include "core/base/stop.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* While the program still loads its engine. */
__attribute__((constructor)) static void signal_early(void)
{
    if (getenv("TEST_SIGNAL_EARLY"))
        raise(SIGTERM);
}

static int show(struct sl_invocation *invocation, struct sl_err *err)
{
    (void)err;
    const char *pg_path = sl_option_string(invocation->options, "pg-path");
    if (!invocation->json) {
        for (int i = 0; i < invocation->arg_count; i++)
            printf("arg=%s\n", invocation->args[i]);
        printf("stanza=%s\npath=%s\nlevel=%lld\nconfig=%s\n",
               invocation->stanza ? invocation->stanza : "-", pg_path ? pg_path : "-",
               (long long)sl_option_int(invocation->options, "level"),
               invocation->config_path ? invocation->config_path : "-");
    }
    json_object_set_new(invocation->result, "level",
                        json_integer(sl_option_int(invocation->options, "level")));
    sl_progress_total(invocation->progress, 1000, 1);
    sl_progress_add(invocation->progress, 1000, 1);
    return 0;
}

static int fail(struct sl_invocation *invocation, struct sl_err *err)
{
    json_object_set_new(invocation->result, "partial", json_true());
    if (strcmp(invocation->args[0], "silently") == 0)
        return SL_ERR_TIMEOUT;
    sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not there", invocation->args[0]);
    return sl_err_hint(err, "look elsewhere");
}

static int contract_status(const struct sl_invocation *invocation, int code)
{
    (void)invocation;
    return code == SL_ERR_CANCELLED ? 201 : 200;
}

/* Sends itself SIGTERM, ARG times, and waits for what happens. */
static int wait_for_stop(struct sl_invocation *invocation, struct sl_err *err)
{
    for (int i = atoi(invocation->args[0]); i > 0; i--)
        raise(SIGTERM);
    struct pollfd stop = {.fd = sl_stop_fd(), .events = POLLIN};
    poll(&stop, 1, 5000);
    return sl_stop_check(err);
}

static const struct sl_command commands[] = {
    {.name = "show", .args = "[A [B]]", .args_max = 2, .summary = "show", .run = show},
    {.name = "about", .args = "", .summary = "show of a stanza", .needs_stanza = true, .run = show},
    {.name = "fail", .args = "WHAT", .args_min = 1, .args_max = 1, .summary = "fail", .run = fail},
    {.name = "contract",
     .args = "WHAT",
     .args_min = 1,
     .args_max = 1,
     .summary = "fail",
     .run = fail,
     .exit_status = contract_status},
    {.name = "wait",
     .args = "N",
     .args_min = 1,
     .args_max = 1,
     .summary = "wait",
     .run = wait_for_stop,
     .exit_status = contract_status},
    {.name = NULL},
};

static const struct sl_option options[] = {
    {.name = "pg-path",
     .type = SL_OPTION_STRING,
     .value_name = "DIR",
     .group = "Test",
     .help = "data directory"},
    {.name = "level",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .default_text = "1",
     .min = 1,
     .max = 9,
     .commands = "show about",
     .help = "level"},
    {.name = NULL},
};

extern const struct sl_engine sluice_engine;
const struct sl_engine sluice_engine = {
    .abi = SL_ENGINE_ABI,
    .name = "test",
    .title = "Test",
    .commands = commands,
    .options = options,
};
