/* Memory: the one door to malloc, so that tests can fail it (fault point "alloc").
 *
 * Words used in Sluice's headers: a function *borrows* what it is passed (uses it until it
 * returns, or as long as said), *takes* it (becomes the owner), or *returns owned* (the caller
 * frees, with the function named). Buffers of the data path come from pools sized at connect.
 */
#ifndef SL_BASE_ALLOC_H
#define SL_BASE_ALLOC_H

#include <stddef.h>

/* Like malloc, calloc, realloc, strdup, strndup, asprintf; NULL when out of memory. Freed with
 * sl_free(), which accepts NULL. */
void *sl_alloc(size_t bytes);
void *sl_calloc(size_t count, size_t bytes);
void *sl_realloc(void *old, size_t bytes);
char *sl_strdup(const char *text);
char *sl_strndup(const char *text, size_t max);
char *sl_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sl_free(void *memory);

/* Whole pages (page-aligned, zeroed, a multiple of the page size), fit for O_DIRECT and for
 * registration: no page is shared with other data (fork safety, see docs/rdma notes in
 * core/verbs). NULL when out of memory. Freed with sl_pages_free(memory, the same bytes). */
void *sl_pages_alloc(size_t bytes);
void sl_pages_free(void *memory, size_t bytes);

/* For __attribute__((cleanup)) on short temporaries. */
void sl_cleanup_free(void *pointer_to_pointer);
#define SL_CLEANUP_FREE __attribute__((cleanup(sl_cleanup_free)))

#endif
