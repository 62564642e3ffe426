/* What `check` finds, whatever the engine: one line each on standard output (or an item of "checks"
 * with --output=json); the first that failed gives the status. */
#ifndef SL_CLI_FINDINGS_H
#define SL_CLI_FINDINGS_H

#include "core/cli/connect.h"

struct sl_findings {
    const struct sl_invocation *invocation; /* to be set; the rest begins zeroed */
    json_t *list;
    struct sl_err first; /* failure */
};

__attribute__((format(printf, 3, 4))) void sl_findings_ok(struct sl_findings *findings,
                                                          const char *name, const char *fmt, ...);
__attribute__((format(printf, 3, 4))) void sl_findings_warn(struct sl_findings *findings,
                                                            const char *name, const char *fmt, ...);
/* What is wrong, and its hint: what to do. */
void sl_findings_failed(struct sl_findings *findings, const char *name, const struct sl_err *err);
/* Transport, clocks, certificate, space. */
void sl_findings_connection(struct sl_findings *findings, struct sl_connection *connection,
                            sl_deadline deadline);
/* Hands the list to the result; 0, or the code of the first failure. */
int sl_findings_end(struct sl_findings *findings, struct sl_err *err);

#endif
