/* Inside of the scripted client (scripted.h): what its parts share. scripted.c has the world, the
 * letters that come and the opening, scripted_objects.c the steps with objects.
 */
#ifndef TESTS_TARGET_SCRIPTED_INTERNAL_H
#define TESTS_TARGET_SCRIPTED_INTERNAL_H

#include "tests/unit/core/target/scripted.h"

/* Where the first letter of this type hangs; a place that holds NULL when there is none. */
struct letter **script_find(struct script *script, enum sl_msg_type type);
/* Takes the letter there off the list; its message lives until the next one is taken. */
struct sl_msg *script_take(struct script *script, struct letter **at);
/* Says what was waited for in vain and what came instead, and aborts; a tolerant script that was
 * refused exits with SCRIPT_REFUSED. */
void __attribute__((noreturn)) script_complain(const struct script *script, enum sl_msg_type type);

#endif
