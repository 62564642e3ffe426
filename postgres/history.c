/* Timeline history, backup_label and backup history files: checking and reading. It follows no
 * history from one timeline to another; recovery does. */
#include "postgres/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the next line to `line` (cut to fit), without its end; false at the end of the text. */
static bool next_line(const char **at, const char *end, char *line, size_t room)
{
    if (*at >= end)
        return false;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline ? newline : end;
    size_t length = (size_t)(stop - *at);
    if (length >= room)
        length = room - 1;
    memcpy(line, *at, length);
    line[length] = '\0';
    if (length && line[length - 1] == '\r')
        line[length - 1] = '\0';
    *at = newline ? newline + 1 : end;
    return true;
}

static bool parse_u32(const char *text, const char **ret_end, uint32_t *ret_value)
{
    uint64_t value = 0;
    int digits = 0;
    for (; *text >= '0' && *text <= '9' && digits < 11; text++, digits++)
        value = value * 10 + (uint64_t)(*text - '0');
    *ret_end = text;
    *ret_value = (uint32_t)value;
    return digits > 0 && value <= UINT32_MAX;
}

static bool parse_switch(const char *line, struct sl_pg_switch *ret)
{
    const char *at;
    if (!parse_u32(line, &at, &ret->timeline) || (*at != '\t' && *at != ' '))
        return false;
    at += strspn(at, " \t");
    char lsn[SL_PG_LSN_BYTES];
    size_t length = strcspn(at, " \t");
    if (length >= sizeof lsn)
        return false;
    memcpy(lsn, at, length);
    lsn[length] = '\0';
    return sl_pg_lsn_parse(lsn, &ret->switch_lsn, NULL) == 0;
}

int sl_pg_history_parse(const char *text, size_t count, uint32_t timeline,
                        void (*visit)(void *arg, const struct sl_pg_switch *line), void *arg,
                        struct sl_err *err)
{
    if (memchr(text, '\0', count))
        return sl_err_set(err, SL_ERR_FORMAT, "a history file with a zero byte in it");
    const char *at = text, *end = text + count;
    char line[256];
    uint32_t before = 0, lines = 0;
    for (int number = 1; next_line(&at, end, line, sizeof line); number++) {
        const char *start = line + strspn(line, " \t");
        if (!*start || *start == '#')
            continue;
        struct sl_pg_switch entry;
        if (!parse_switch(start, &entry))
            return sl_err_set(err, SL_ERR_FORMAT,
                              "line %d of the history file is not timeline, location, reason",
                              number);
        if (entry.timeline <= before || entry.timeline >= timeline)
            return sl_err_set(
                err, SL_ERR_FORMAT,
                "line %d of the history file of timeline %u names timeline %u after %u", number,
                timeline, entry.timeline, before);
        before = entry.timeline;
        lines++;
        if (visit)
            visit(arg, &entry);
    }
    if (!lines)
        return sl_err_set(err, SL_ERR_FORMAT, "a history file without a line");
    return 0;
}

/* "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)" */
static bool parse_location(const char *value, uint64_t *ret_lsn, struct sl_pg_wal_name *ret_file)
{
    char lsn[SL_PG_LSN_BYTES], file[32];
    if (sscanf(value, "%19[0-9A-Fa-f/] (file %24[0-9A-F])", lsn, file) != 2)
        return false;
    return sl_pg_lsn_parse(lsn, ret_lsn, NULL) == 0 &&
           sl_pg_wal_name_parse(file, ret_file, NULL) == 0 && ret_file->kind == SL_PG_SEGMENT;
}

static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    return !strncmp(line, key, length) ? line + length : NULL;
}

int sl_pg_backup_label_parse(const char *text, size_t count, struct sl_pg_backup_label *ret_label,
                             struct sl_err *err)
{
    struct sl_pg_backup_label label = {0};
    bool started = false, checkpoint = false, good = !memchr(text, '\0', count);
    const char *at = text, *end = text + count, *value;
    char line[1024];
    while (good && next_line(&at, end, line, sizeof line)) {
        if ((value = value_of(line, "START WAL LOCATION: ")))
            good = started = parse_location(value, &label.start_lsn, &label.start_segment);
        else if ((value = value_of(line, "CHECKPOINT LOCATION: ")))
            good = checkpoint = sl_pg_lsn_parse(value, &label.checkpoint_lsn, NULL) == 0;
        else if ((value = value_of(line, "START TIMELINE: ")))
            good = parse_u32(value, &value, &label.timeline) && !*value && label.timeline;
    }
    if (!good || !started || !checkpoint)
        return sl_err_set(err, SL_ERR_FORMAT, "not a backup_label or backup history file");
    if (!label.timeline)
        label.timeline = label.start_segment.timeline;
    *ret_label = label;
    return 0;
}
