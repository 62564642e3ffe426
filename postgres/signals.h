/* SIGTERM and SIGINT, and the last resort against hanging: commands that PostgreSQL runs must end
 * with a status of their contract whatever happens.
 */
#ifndef SL_POSTGRES_SIGNALS_H
#define SL_POSTGRES_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

struct sl_client;

/* From now on SIGTERM, SIGINT and SIGHUP cancel the client that was told with
 * sl_pg_signals_client(); without one, or at the second signal, the process ends at once with
 * `exit_status`. So it does when `limit_ms` (0: no limit) have passed. SIGPIPE is ignored. */
void sl_pg_signals_install(int exit_status, uint64_t limit_ms);
void sl_pg_signals_client(struct sl_client *client); /* NULL before it is closed */
bool sl_pg_signals_caught(void);

#endif
