/* The little JSON that a repository holds (repo.json, stanza.json). Private to core/repo. */
#ifndef SL_REPO_JSON_H
#define SL_REPO_JSON_H

#include "core/base/err.h"

#include <jansson.h>
#include <stddef.h>

/* `json` on one line with a newline; takes the reference (NULL: out of memory). Returns owned. */
int sl_repo_json_line(json_t *json, char **ret_text, struct sl_err *err);
/* An object whose "version" is `version`; others are SL_ERR_VERSION. Unknown keys are left to the
 * caller, who ignores them: what changes the meaning of a file changes its version. */
int sl_repo_json_read(const char *text, size_t count, const char *what, int version, json_t **ret,
                      struct sl_err *err);
/* A member that must be there: a string without NUL that fits; an integer. */
int sl_repo_json_string(json_t *object, const char *key, char *to, size_t room);
int sl_repo_json_integer(json_t *object, const char *key, json_int_t *ret);

#endif
