/* JSON: see the header. */
#include "core/base/json.h"

#include "core/base/alloc.h"

#include <pthread.h>
#include <stdio.h>

static _Thread_local unsigned failures; /* of jansson's allocations */

static void *allocate(size_t bytes)
{
    void *memory = sl_alloc(bytes);
    failures += !memory;
    return memory;
}

static void set_functions(void)
{
    json_set_alloc_funcs(allocate, sl_free); /* what was allocated before may be freed so, too */
}

/* How often this thread's jansson was short of memory. */
static unsigned failures_now(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_functions);
    return failures;
}

json_t *sl_json_text(const char *text)
{
    unsigned before = failures_now();
    json_t *string = json_string(text);
    if (string || failures != before)
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

json_t *sl_json_load(const char *text, size_t bytes, json_error_t *error)
{
    unsigned before = failures_now();
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
    if (failures == before)
        return root;
    json_decref(root);
    snprintf(error->text, sizeof error->text - 1, "out of memory");
    error->text[sizeof error->text - 1] = json_error_out_of_memory; /* where jansson keeps it */
    return NULL;
}
