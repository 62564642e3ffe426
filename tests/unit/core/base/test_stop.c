/* Stopping: the first signal calls and is remembered, the second ends the process. */
#include "core/base/stop.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static volatile int called;

static void call(void *arg)
{
    called += *(int *)arg;
}

/* State is one a process: each case in a child, which returns 0 if all was well. */
static int in_child(int (*scenario)(void))
{
    pid_t child = fork();
    if (child == 0)
        _exit(scenario());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int without_init(void)
{
    int one = 1;
    int ticket = sl_stop_on(call, &one);
    sl_stop_off(ticket);
    return sl_stopped() || sl_stop_fd() != -1 || sl_stop_check(NULL) || ticket < 0;
}

static int first_signal(void)
{
    int one = 1, two = 2, four = 4;
    if (sl_stop_init(NULL))
        return 1;
    int gone = sl_stop_on(call, &two);
    int stays = sl_stop_on(call, &one);
    sl_stop_off(gone);
    if (sl_stopped() || sl_stop_check(NULL))
        return 2;
    raise(SIGTERM);
    struct pollfd readable = {.fd = sl_stop_fd(), .events = POLLIN};
    struct sl_err err;
    if (called != 1 || !sl_stopped() || poll(&readable, 1, 0) != 1)
        return 3;
    if (sl_stop_check(&err) != SL_ERR_CANCELLED || err.code != SL_ERR_CANCELLED)
        return 4;
    sl_stop_off(stays);
    int late = sl_stop_on(call, &four); /* at once */
    sl_stop_off(late);
    return called != 5;
}

static int many(void)
{
    int one = 1, tickets[9];
    for (int i = 0; i < 9; i++)
        tickets[i] = sl_stop_on(call, &one);
    if (tickets[7] < 0 || tickets[8] != -1)
        return 1;
    sl_stop_off(-1);
    sl_stop_off(tickets[3]);
    return sl_stop_on(call, &one) != tickets[3];
}

static int second_signal(void)
{
    sl_stop_init(NULL);
    raise(SIGINT);
    raise(SIGTERM);
    return 0;
}

static int second_signal_with_status(void)
{
    sl_stop_init(NULL);
    sl_stop_exit_status(70);
    raise(SIGINT);
    raise(SIGINT);
    return 0;
}

static void stop__scenarios(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_init), 0);
    assert_int_equal(in_child(first_signal), 0);
    assert_int_equal(in_child(many), 0);
    assert_int_equal(in_child(second_signal), 128 + SIGTERM);
    assert_int_equal(in_child(second_signal_with_status), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stop__scenarios)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
