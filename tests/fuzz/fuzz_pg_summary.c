/* Rows of WAL summaries, a line each with columns between tabs, as a server might send them: each
 * is refused, or found again by the path of its relation. Lines of two columns are places in WAL.
 */
#include "postgres/wal_summary_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES_MAX 200

struct row {
    const char *columns[SL_PG_SUMMARY_COLUMNS];
};

static void find_again(const struct sl_pg_summary *s, const struct row *row)
{
    struct sl_pg_summary_file file;
    char path[200];
    unsigned long space = strtoul(row->columns[0], NULL, 10),
                  database = strtoul(row->columns[1], NULL, 10),
                  relation = strtoul(row->columns[2], NULL, 10);
    if (space == 1664)
        snprintf(path, sizeof path, "global/%lu", relation);
    else if (space == 1663)
        snprintf(path, sizeof path, "base/%lu/%lu", database, relation);
    else
        snprintf(path, sizeof path, "pg_tblspc/%lu/PG_17_202406281/%lu/%lu", space, database,
                 relation);
    if ((space != 1664 || !database) && sl_pg_summary_find(s, path, &file) &&
        !sl_pg_summary_changed(s, &file, (uint32_t)strtoul(row->columns[4], NULL, 10)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_pg_summary *s = sl_pg_summary_new();
    struct sl_pg_summary_file file;
    struct row rows[LINES_MAX];
    size_t count = 0;
    uint64_t reached = 0;
    char *text = malloc(size + 1), *rest = text, *line;
    memcpy(text, data, size);
    text[size] = '\0';
    while (s && (line = strsep(&rest, "\n")) && count < LINES_MAX) {
        struct row row = {0};
        unsigned columns = 0;
        (void)sl_pg_summary_find(s, line, &file);
        for (char *column; columns < SL_PG_SUMMARY_COLUMNS && (column = strsep(&line, "\t"));)
            row.columns[columns++] = column;
        uint64_t before = reached;
        (void)sl_pg_summary_goes_on(&reached, row.columns[0], row.columns[1]);
        if (reached < before)
            abort();
        if (!sl_pg_summary_add(s, row.columns, NULL))
            rows[count++] = row;
    }
    sl_pg_summary_end(s);
    for (size_t i = 0; i < count; i++)
        find_again(s, &rows[i]);
    sl_pg_summary_free(s);
    free(text);
    return 0;
}
