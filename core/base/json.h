/* JSON: what jansson lacks for Sluice. */
#ifndef SL_BASE_JSON_H
#define SL_BASE_JSON_H

#include <jansson.h>

/* A string of any bytes: of text that is not UTF-8 (a file name, a peer's message) every byte
 * above ASCII becomes '?'. Returns owned; NULL only when out of memory. */
json_t *sl_json_text(const char *text);

#endif
