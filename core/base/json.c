/* JSON: see the header. */
#include "core/base/json.h"

#include "core/base/alloc.h"

json_t *sl_json_text(const char *text)
{
    json_t *string = json_string(text);
    if (string)
        return string;
    char *plain = sl_strdup(text);
    if (!plain)
        return NULL;
    for (char *at = plain; *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    string = json_string(plain);
    sl_free(plain);
    return string;
}
