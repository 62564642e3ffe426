/* Signals of the commands: see the header. Handlers do only what signal-safety(7) allows. */
#include "postgres/signals.h"

#include "core/client/client.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

static _Atomic(struct sl_client *) cancels;
static atomic_int caught;
static int status_at_once;

static void on_signal(int number)
{
    struct sl_client *client = atomic_load(&cancels);
    if (number == SIGALRM || !client || atomic_fetch_add(&caught, 1) > 0)
        _exit(status_at_once);
    sl_client_cancel(client);
}

void sl_pg_signals_install(int exit_status, uint64_t limit_ms)
{
    status_at_once = exit_status;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    if (!limit_ms)
        return;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {.tv_sec = (time_t)(limit_ms / 1000),
                                           .tv_usec = (suseconds_t)(limit_ms % 1000 * 1000)}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

void sl_pg_signals_client(struct sl_client *client)
{
    atomic_store(&cancels, client);
}

bool sl_pg_signals_caught(void)
{
    return atomic_load(&caught) > 0;
}
