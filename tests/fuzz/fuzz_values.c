/* Parsers of sizes, durations and numbers: what reads is not negative and prints. */
#include "core/base/options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[200], shown[16];
    if (size >= sizeof text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    int64_t value = -1;
    struct sl_err err;
    if (sl_parse_bytes(text, &value, &err) == 0) {
        if (value < 0)
            abort();
        sl_bytes_text((uint64_t)value, shown, sizeof shown);
    } else if (value != -1) {
        abort();
    }
    value = -1;
    if (sl_parse_duration_ms(text, &value, NULL) == 0 ? value < 0 : value != -1)
        abort();
    static const char *const words[] = {"backup", "restore", "archive-push"};
    sl_nearest(text, words, 3);
    return 0;
}
