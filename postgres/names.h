/* The names in one folder, sorted bytewise: an arena, so that a million of them fit in 32 MiB.
 */
#ifndef SL_POSTGRES_NAMES_H
#define SL_POSTGRES_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_pg_names {
    char *bytes;
    uint32_t *offsets;
    size_t used, bytes_room, count, room;
};

/* Adds a copy of name and suffix. false: out of memory (or 4 GiB of names). */
bool sl_pg_names_add(struct sl_pg_names *names, const char *name, const char *suffix);
void sl_pg_names_sort(struct sl_pg_names *names);
const char *sl_pg_names_at(const struct sl_pg_names *names, size_t index);
/* In sorted names: is it there? */
bool sl_pg_names_has(const struct sl_pg_names *names, const char *name);
void sl_pg_names_free(struct sl_pg_names *names); /* leaves it empty */

#endif
