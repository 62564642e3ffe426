/* JSON: what jansson lacks for Sluice. */
#ifndef SL_BASE_JSON_H
#define SL_BASE_JSON_H

#include <jansson.h>

/* A string of any bytes: of text that is not UTF-8 (a file name, a peer's message) every byte
 * above ASCII becomes '?'. Returns owned; NULL only when out of memory. */
json_t *sl_json_text(const char *text);

/* json_loadb() with JSON_REJECT_DUPLICATES that fails when memory ran out: jansson's reader drops
 * the characters it has no room for, and goes on. NULL: see `error`; out of memory is always
 * json_error_out_of_memory. From the first call on jansson allocates through sl_alloc. */
json_t *sl_json_load(const char *text, size_t bytes, json_error_t *error);

#endif
