/* Reading --target-time. Strict: what is not understood is refused, because a guess would choose
 * the wrong backup or the wrong moment. */
#include "postgres/target_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool number(const char **at, int digits, int *ret)
{
    int value = 0;
    for (int i = 0; i < digits; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        value = value * 10 + (**at - '0');
    }
    *ret = value;
    return true;
}

static bool literal(const char **at, char c)
{
    return **at == c ? ((*at)++, true) : false;
}

static bool date_and_time(const char **at, struct tm *tm, double *ret_fraction)
{
    int year, month;
    *ret_fraction = 0;
    bool ok = number(at, 4, &year) && literal(at, '-') && number(at, 2, &month) &&
              literal(at, '-') && number(at, 2, &tm->tm_mday) &&
              (literal(at, ' ') || literal(at, 'T')) && number(at, 2, &tm->tm_hour) &&
              literal(at, ':') && number(at, 2, &tm->tm_min);
    if (!ok)
        return false;
    tm->tm_year = year - 1900;
    tm->tm_mon = month - 1;
    if (!literal(at, ':'))
        return true;
    if (!number(at, 2, &tm->tm_sec))
        return false;
    if (**at == '.') {
        size_t digits = strspn(*at + 1, "0123456789");
        if (!digits || digits > 9)
            return false;
        *ret_fraction = strtod(*at, NULL);
        char copy[16];
        snprintf(copy, sizeof copy, "0%.*s", (int)digits + 1, *at);
        *ret_fraction = strtod(copy, NULL);
        *at += digits + 1;
    }
    return true;
}

/* "+01", "-03:30", "+0530": seconds east of Greenwich. */
static bool offset(const char **at, long *ret_seconds)
{
    int hours, minutes = 0;
    int sign = **at == '-' ? -1 : 1;
    (*at)++;
    if (!number(at, 2, &hours) || hours > 15)
        return false;
    if (**at && (literal(at, ':'), !number(at, 2, &minutes)))
        return false;
    *ret_seconds = sign * (hours * 3600L + minutes * 60L);
    return minutes < 60;
}

static bool zone(const char *at, bool *ret_given, long *ret_seconds)
{
    at += strspn(at, " ");
    *ret_given = *at != '\0';
    *ret_seconds = 0;
    if (!*at || !strcmp(at, "Z") || !strcmp(at, "UTC") || !strcmp(at, "GMT"))
        return true;
    return (*at == '+' || *at == '-') && offset(&at, ret_seconds) && !*at;
}

/* timegm() and mktime() turn the 31st of June into the 1st of July; that is refused. */
static bool same_fields(const struct tm *a, const struct tm *b)
{
    return a->tm_year == b->tm_year && a->tm_mon == b->tm_mon && a->tm_mday == b->tm_mday &&
           a->tm_hour == b->tm_hour && a->tm_min == b->tm_min && a->tm_sec == b->tm_sec;
}

int sl_pg_target_time_parse(const char *text, struct sl_pg_target_time *ret_time,
                            struct sl_err *err)
{
    struct tm tm = {.tm_isdst = -1};
    struct sl_pg_target_time t = {0};
    double fraction;
    long seconds;
    const char *at = text;
    bool ok = strlen(text) < sizeof t.text - 8 && date_and_time(&at, &tm, &fraction) &&
              zone(at, &t.zone_given, &seconds);
    struct tm given = tm;
    time_t whole = 0;
    if (ok) {
        whole = t.zone_given ? timegm(&tm) - seconds : mktime(&tm);
        ok = same_fields(&tm, &given);
    }
    if (!ok) {
        sl_err_set(err, SL_ERR_USAGE, "\"%.60s\" is not a time that can be read", text);
        sl_err_hint(err, "write it as 2026-11-30 16:25:37.123+01");
        return SL_ERR_USAGE;
    }
    t.epoch = (double)whole + fraction;
    long minutes = labs(tm.tm_gmtoff) / 60;
    if (t.zone_given)
        snprintf(t.text, sizeof t.text, "%s", text);
    else
        snprintf(t.text, sizeof t.text, "%s%c%02ld:%02ld", text, tm.tm_gmtoff < 0 ? '-' : '+',
                 minutes / 60, minutes % 60);
    *ret_time = t;
    return 0;
}
