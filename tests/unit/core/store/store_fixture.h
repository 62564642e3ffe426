/* A posix store in a folder of its own, and short ways to put and compare. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include "core/base/fault.h"
#include "core/store/posix_internal.h"
#include "core/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct store_fixture {
    char path[128];
    struct sl_store *store;
};

/* A new folder below `base` ("/tmp"), removed by fixture_close. */
struct store_fixture *fixture_open(const char *base);
void fixture_close(struct store_fixture *f);
/* Free the store and open it anew, as after a restart. */
void fixture_reopen(struct store_fixture *f);
/* cmocka setup and teardown: *state is a struct store_fixture on /tmp; faults are off afterwards.
 */
int fixture_setup(void **state);
int fixture_teardown(void **state);
/* The same in memory (/dev/shm, or /tmp without it), for many rounds: syncs cost nothing there. */
int fixture_setup_in_memory(void **state);

/* An open temporary with `text` written. */
struct sl_file *draft(struct sl_store *store, const char *text);
/* Create, write, publish alone, close. */
enum sl_publish_result put(struct sl_store *store, const char *name, const char *text,
                           struct sl_err *err);
/* The code of opening and reading `name`, SL_ERR_CHECKSUM when it is not exactly `text`. */
int compare(struct sl_store *store, const char *name, const char *text);
/* "name/ name=length …" of a folder, in a buffer of its own. */
const char *listing(struct sl_store *store, const char *folder);
/* How many names the root's .tmp folder holds, 0 when there is none. */
size_t temporaries(const struct store_fixture *f);

#define assert_code(call, code) assert_int_equal((call), (code))

#endif
