/* JSON files of a repository: the few calls of jansson that they need. */
#include "core/repo/json.h"

#include "core/base/alloc.h"
#include "core/base/json.h"

#include <string.h>

int sl_repo_json_line(json_t *json, char **ret_text, struct sl_err *err)
{
    size_t bytes = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
    char *text = bytes ? sl_alloc(bytes + 2) : NULL;
    if (!text || json_dumpb(json, text, bytes, JSON_COMPACT) != bytes) {
        sl_free(text);
        json_decref(json);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for JSON, or text is not UTF-8");
    }
    json_decref(json);
    memcpy(text + bytes, "\n", 2);
    *ret_text = text;
    return 0;
}

int sl_repo_json_read(const char *text, size_t count, const char *what, int version, json_t **ret,
                      struct sl_err *err)
{
    json_error_t at = {0};
    json_int_t found;
    json_t *root = sl_json_load(text, count, &at);
    if (!root && json_error_code(&at) == json_error_out_of_memory)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for %s", what);
    if (!root)
        return sl_err_set(err, SL_ERR_FORMAT, "%s is no JSON: line %d, column %d", what, at.line,
                          at.column);
    if (sl_repo_json_integer(root, "version", &found) < 0) {
        json_decref(root);
        return sl_err_set(err, SL_ERR_FORMAT, "%s has no version", what);
    }
    if (found != version) {
        json_decref(root);
        return sl_err_set(err, SL_ERR_VERSION,
                          "%s is of version %" JSON_INTEGER_FORMAT ", this program knows %d", what,
                          found, version);
    }
    *ret = root;
    return 0;
}

int sl_repo_json_string(json_t *object, const char *key, char *to, size_t room)
{
    json_t *value = json_object_get(object, key);
    size_t length = json_string_length(value);
    const char *text = json_string_value(value);
    if (!text || length >= room || memchr(text, '\0', length))
        return SL_ERR_FORMAT;
    memcpy(to, text, length + 1);
    return 0;
}

int sl_repo_json_integer(json_t *object, const char *key, json_int_t *ret)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return SL_ERR_FORMAT;
    *ret = json_integer_value(value);
    return 0;
}
