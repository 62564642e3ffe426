/* What a backup tool says. Its texts are for people and change; only "completed OK!" is relied on.
 */
#include "mysql/said.h"

#include "core/base/log.h"

#include <string.h>

#define DONE "completed OK!"

static void end_line(struct sl_my_said *s)
{
    s->line[s->line_bytes] = '\0';
    s->line_bytes = 0;
    if (!s->line[strspn(s->line, " \t\r")])
        return;
    memcpy(s->last, s->line, sizeof s->last);
    if (strstr(s->line, "rror") || strstr(s->line, "ERROR") || strstr(s->line, "FATAL"))
        memcpy(s->complaint, s->line, sizeof s->complaint);
    sl_log(SL_LOG_DETAIL, "mysql", "%s", s->line);
}

void sl_my_said_take(struct sl_my_said *s, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (text[i] == '\n')
            end_line(s);
        else if (s->line_bytes + 1 < sizeof s->line)
            s->line[s->line_bytes++] = text[i];
    }
}

void sl_my_said_end(struct sl_my_said *s)
{
    if (s->line_bytes)
        end_line(s);
}

int sl_my_said_done(const struct sl_my_said *s, struct sl_err *err)
{
    size_t length = strlen(s->last), done = strlen(DONE);
    while (length && strchr(" \t\r", s->last[length - 1]))
        length--;
    if (length >= done && memcmp(s->last + length - done, DONE, done) == 0)
        return 0;
    return sl_err_set(err, SL_ERR_READ,
                      "the backup tool ended with status 0, but did not say \"" DONE "\"");
}

int sl_my_said_blame(const struct sl_my_said *s, int code, struct sl_err *err)
{
    const char *said = s->complaint[0] ? s->complaint : s->last;
    if (code && said[0] && err && !err->hint[0])
        sl_err_hint(err, "it said: %.300s", said);
    return code;
}
