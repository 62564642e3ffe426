/* Shared by expire.c and expire_state.c only. */
#ifndef SL_CLI_EXPIRE_INTERNAL_H
#define SL_CLI_EXPIRE_INTERNAL_H

#include "core/cli/expire.h"

/* expire_state.c: every backup folder, and what is known of it; sorted by time. */
int sl_expire_load(struct sl_expire *e, struct sl_err *err);
void sl_expire_unload(struct sl_expire *e);
void sl_expire_free(struct sl_subject *subjects, size_t count);

#endif
