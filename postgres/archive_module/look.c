/* What is .ready in archive_status. Only names are looked at: whether a file is there and good is
 * found out when it is pushed. */
#include "postgres/archive_module/pusher_internal.h"

#include <dirent.h>
#include <string.h>

int sl_pg_ready_compare(const struct sl_pg_wal_name *a, const struct sl_pg_wal_name *b)
{
    bool a_first = a->kind == SL_PG_HISTORY, b_first = b->kind == SL_PG_HISTORY;
    return a_first != b_first ? (a_first ? -1 : 1) : strcmp(a->text, b->text);
}

static bool parse(const char *entry, struct sl_pg_wal_name *name)
{
    char text[SL_PG_WAL_NAME_BYTES];
    const char *dot = strrchr(entry, '.');
    if (!dot || strcmp(dot, ".ready") || (size_t)(dot - entry) >= sizeof text)
        return false;
    memcpy(text, entry, (size_t)(dot - entry));
    text[dot - entry] = '\0';
    return !sl_pg_wal_name_parse(text, name, NULL);
}

/* Into its place among the first ones, of which the last may fall out. */
static size_t keep(struct sl_pg_wal_name *names, size_t count, const struct sl_pg_wal_name *name)
{
    size_t at = count;
    while (at && sl_pg_ready_compare(name, &names[at - 1]) < 0)
        at--;
    if (at == SL_PG_AHEAD_MAX)
        return count;
    if (count == SL_PG_AHEAD_MAX)
        count--;
    memmove(names + at + 1, names + at, (count - at) * sizeof *names);
    names[at] = *name;
    return count + 1;
}

size_t sl_pg_ready_look(const char *folder, const struct sl_pg_wal_name *last,
                        struct sl_pg_wal_name ret_names[SL_PG_AHEAD_MAX])
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    size_t count = 0;
    bool wait = false;
    while (dir && !wait && (entry = readdir(dir))) {
        struct sl_pg_wal_name name;
        if (!parse(entry->d_name, &name))
            continue;
        if (sl_pg_ready_compare(&name, last) > 0)
            count = keep(ret_names, count, &name);
        else
            wait = name.kind == SL_PG_HISTORY && strcmp(name.text, last->text) != 0;
    }
    if (dir)
        closedir(dir);
    return wait ? 0 : count;
}
