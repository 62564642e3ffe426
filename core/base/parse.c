/* Values with units: sizes and durations, from text and to text. Whole numbers only: a fraction of
 * a unit is a smaller unit. */
#include "core/base/options.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* A bare letter is a power of 1024, as in dd(1) and pgBackRest; "kB" and "MB" are powers of 1000,
 * as the SI has it. */
static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"k", 1024},
    {"kB", 1000},
    {"KiB", 1024},
    {"M", 1024 * 1024},
    {"MB", 1000000},
    {"MiB", 1024 * 1024},
    {"G", 1ll << 30},
    {"GB", 1000000000},
    {"GiB", 1ll << 30},
    {"T", 1ll << 40},
    {"TB", 1000000000000},
    {"TiB", 1ll << 40},
    {"P", 1ll << 50},
    {"PB", 1000000000000000},
    {"PiB", 1ll << 50},
    {NULL, 0},
};

static const struct unit duration_units[] = {
    {"ms", 1},    {"", 1000},     {"s", 1000},     {"sec", 1000},    {"min", 60000},
    {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {"w", 604800000}, {NULL, 0},
};

/* Digits, then a unit of `units`. Returns false if it does not read or does not fit. */
static bool parse_number_with_unit(const char *text, const struct unit *units, int64_t *ret_value)
{
    const char *at = text;
    int64_t value = 0;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *at - '0', &value))
            return false;
    while (*at == ' ')
        at++;
    for (; units->name; units++)
        if (strcasecmp(at, units->name) == 0)
            break;
    if (!units->name || __builtin_mul_overflow(value, units->factor, &value))
        return false;
    *ret_value = value;
    return true;
}

int sl_parse_bytes(const char *text, int64_t *ret_bytes, struct sl_err *err)
{
    char plain[64];
    size_t length = strlen(text);
    if (length > 2 && strcmp(text + length - 2, "/s") == 0)
        length -= 2; /* a rate */
    int64_t value;
    if (length < sizeof plain) {
        memcpy(plain, text, length);
        plain[length] = '\0';
        if (parse_number_with_unit(plain, size_units, &value)) {
            *ret_bytes = value;
            return 0;
        }
    }
    sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not a size", text);
    sl_err_hint(err, "write it as 4096, 512kB, 64MiB or 1GB");
    return SL_ERR_USAGE;
}

int sl_parse_duration_ms(const char *text, int64_t *ret_ms, struct sl_err *err)
{
    if (parse_number_with_unit(text, duration_units, ret_ms))
        return 0;
    sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not a duration", text);
    sl_err_hint(err, "write it as 500ms, 30s, 5min, 2h or 7d; a bare number is seconds");
    return SL_ERR_USAGE;
}

const char *sl_bytes_text(uint64_t bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    size_t unit = 0;
    double value = (double)bytes;
    /* 999.95 would print as "1000.0" */
    while (value >= 999.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(text, room, "%" PRIu64 " B", bytes);
    else
        snprintf(text, room, "%.*f %s", value < 9.995 ? 2 : 1, value, units[unit]);
    return text;
}
