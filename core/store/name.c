/* The rules for names, the same for every store. A name that passes can be used below a folder
 * without leaving it. */
#include "core/store/store.h"

#include <string.h>

#define COMPONENT_MAX 255 /* NAME_MAX, limits.h */

static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "._+=@:-";

/* What is wrong with the component at `at`, or NULL; its length. */
static const char *check_component(const char *at, size_t *ret_length)
{
    size_t length = strcspn(at, "/");
    *ret_length = length;
    if (!length)
        return "has an empty component";
    if (length > COMPONENT_MAX)
        return "has a component of more than 255 bytes";
    if (*at == '.')
        return "has a component that begins with a dot";
    if (strspn(at, allowed) < length)
        return "has a character other than A-Z a-z 0-9 . _ + = @ : -";
    return NULL;
}

static const char *check(const char *name, bool allow_empty)
{
    if (!*name)
        return allow_empty ? NULL : "is empty";
    if (strnlen(name, SL_STORE_NAME_MAX) == SL_STORE_NAME_MAX)
        return "is too long";
    for (const char *at = name;; at++) {
        size_t length;
        const char *wrong = check_component(at, &length);
        at += length;
        if (wrong || !*at)
            return wrong;
    }
}

int sl_store_name_check(const char *name, bool allow_empty, struct sl_err *err)
{
    const char *wrong = check(name, allow_empty);
    if (!wrong)
        return 0;
    return sl_err_set(err, SL_ERR_USAGE, "name \"%.80s\" %s", name, wrong);
}
