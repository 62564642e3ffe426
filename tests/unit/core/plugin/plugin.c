/* A plugin for tests: good, or bad in the one way that KIND_… says. */
#include "core/plugin/engine.h"

#if defined KIND_MISSING
/* the program does not have this: the plugin must not load */
int a_function_nobody_has(void);
extern int (*const test_needs)(void);
int (*const test_needs)(void) = a_function_nobody_has;
#endif

#if defined KIND_NOTHING
extern const int test_nothing;
const int test_nothing = 1;
#else
static const struct sl_command commands[] = {{.name = "hello"}, {.name = NULL}};
#if !defined KIND_INCOMPLETE
static const struct sl_option options[] = {{.name = NULL}};
#endif

extern const struct sl_engine sluice_engine;
const struct sl_engine sluice_engine = {
#if defined KIND_ABI
    .abi = SL_ENGINE_ABI + 1,
#else
    .abi = SL_ENGINE_ABI,
#endif
    .name = "good",
    .title = "Good",
    .commands = commands,
#if !defined KIND_INCOMPLETE
    .options = options,
#endif
};
#endif
