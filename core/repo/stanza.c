/* stanza.json: which engine a stanza belongs to, and the lives of its cluster. */
#include "core/base/alloc.h"
#include "core/repo/json.h"
#include "core/repo/manifest.h"

#include <string.h>

#define STANZA_VERSION  1
#define STANZA_JSON_MAX (64u * 1024)

static json_t *life_to_json(const struct sl_stanza_life *life)
{
    return json_pack("{s:s, s:s, s:I}", "id", life->id, "version", life->version, "created_ns",
                     (json_int_t)life->created_ns);
}

static const char *stanza_fault(const struct sl_stanza *stanza)
{
    if (!stanza->engine[0])
        return "no engine is named";
    if (!stanza->life_count || stanza->life_count > SL_LIVES_MAX)
        return "it has no life, or too many";
    for (uint32_t i = 0; i < stanza->life_count; i++) {
        if (!stanza->lives[i].id[0] || stanza->lives[i].created_ns > INT64_MAX)
            return "a life without identity, or from an impossible time";
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(stanza->lives[i].id, stanza->lives[k].id))
                return "two lives of one identity";
    }
    return NULL;
}

int sl_stanza_encode(const struct sl_stanza *stanza, char **ret_json, struct sl_err *err)
{
    const char *fault = stanza_fault(stanza);
    if (fault)
        return sl_err_set(err, SL_ERR_INTERNAL, "stanza cannot be written: %s", fault);
    json_t *lives = json_array();
    for (uint32_t i = 0; lives && i < stanza->life_count; i++)
        if (json_array_append_new(lives, life_to_json(&stanza->lives[i])) != 0) {
            json_decref(lives);
            lives = NULL;
        }
    if (!lives)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for stanza.json");
    /* 'o' takes the reference, also on failure (jansson 2.14, json_pack) */
    json_t *root = json_pack("{s:i, s:s, s:o}", "version", STANZA_VERSION, "engine", stanza->engine,
                             "lives", lives);
    return sl_repo_json_line(root, ret_json, err);
}

static int life_from_json(json_t *json, struct sl_stanza_life *life)
{
    json_int_t created = -1;
    if (sl_repo_json_string(json, "id", life->id, sizeof life->id) < 0 ||
        sl_repo_json_string(json, "version", life->version, sizeof life->version) < 0 ||
        sl_repo_json_integer(json, "created_ns", &created) < 0 || created < 0)
        return SL_ERR_FORMAT;
    life->created_ns = (uint64_t)created;
    return 0;
}

static int stanza_from_json(json_t *root, struct sl_stanza *stanza, struct sl_err *err)
{
    json_t *lives = json_object_get(root, "lives");
    size_t count = json_array_size(lives);
    if (sl_repo_json_string(root, "engine", stanza->engine, sizeof stanza->engine) < 0 || !count ||
        count > SL_LIVES_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "stanza.json lacks its engine or lives");
    for (size_t i = 0; i < count; i++)
        if (life_from_json(json_array_get(lives, i), &stanza->lives[i]) < 0)
            return sl_err_set(err, SL_ERR_FORMAT, "life %zu of stanza.json is malformed", i + 1);
    stanza->life_count = (uint32_t)count;
    const char *fault = stanza_fault(stanza);
    return fault ? sl_err_set(err, SL_ERR_FORMAT, "stanza.json is malformed: %s", fault) : 0;
}

int sl_stanza_decode(const char *json, size_t count, struct sl_stanza *stanza, struct sl_err *err)
{
    if (count > STANZA_JSON_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "stanza.json has %zu bytes, which is too much",
                          count);
    struct sl_stanza *decoded = sl_calloc(1, sizeof *decoded);
    if (!decoded)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for stanza.json");
    json_t *root = NULL;
    int rc = sl_repo_json_read(json, count, "stanza.json", STANZA_VERSION, &root, err);
    if (rc == 0)
        rc = stanza_from_json(root, decoded, err);
    if (rc == 0)
        *stanza = *decoded;
    json_decref(root);
    sl_free(decoded);
    return rc;
}
