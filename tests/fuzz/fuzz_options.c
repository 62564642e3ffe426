/* The configuration file's parser: any bytes end in values or in an error that names the line. */
#include "core/base/options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_option table[] = {
    {.name = "s", .type = SL_OPTION_STRING},
    {.name = "b", .type = SL_OPTION_BOOL},
    {.name = "i", .type = SL_OPTION_INT, .min = -5, .max = 100},
    {.name = "y", .type = SL_OPTION_BYTES},
    {.name = "d", .type = SL_OPTION_DURATION},
    {.name = "c", .type = SL_OPTION_CHOICE, .choices = "auto|on|off"},
    {.name = "l", .type = SL_OPTION_LIST},
    {.name = "x", .type = SL_OPTION_LIST, .flags = SL_OPTION_SECTION},
    {NULL},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const commands[] = {"backup", NULL};
    const struct sl_option *const tables[] = {table};
    struct sl_options *options = NULL;
    struct sl_err err = {0};
    if (sl_options_new(tables, 1, &options, &err))
        abort();
    if (size && data[0] & 1)
        sl_options_lenient(options, true);
    if (size && data[0] & 2)
        sl_options_commands(options, commands);
    const char *stanza = size && data[0] & 4 ? "main" : NULL;
    if (size) {
        int rc = sl_options_parse_text(options, (const char *)data + 1, size - 1, "f", stanza,
                                       "backup", &err);
        if (rc && (rc != err.code || strncmp(err.msg, "f:", 2) != 0))
            abort();
        int64_t i = sl_option_int(options, "i");
        if (i < -5 || i > 100)
            abort();
        const char **names;
        sl_options_sections(options, &names);
        for (; *names; names++)
            sl_options_in_section(options, *names, "x");
    }
    sl_options_free(options);
    return 0;
}
