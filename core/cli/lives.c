/* Reading and extending a stanza's list of lives. No server is asked here. */
#include "core/cli/lives.h"

#include "core/base/alloc.h"

#include <stdio.h>
#include <string.h>

#define LIST_BYTES_MAX (256u * 1024)

void sl_lives_object(uint32_t number, char name[SL_LIVES_NAME])
{
    if (number < 2)
        snprintf(name, SL_LIVES_NAME, "stanza.json");
    else
        snprintf(name, SL_LIVES_NAME, "stanza-%u.json", number);
}

int sl_lives_missing(const char *stanza, struct sl_err *err)
{
    sl_err_set(err, SL_ERR_NOT_FOUND, "stanza \"%s\" is not in the repository", stanza);
    return sl_err_hint(err, "run: sluice --stanza=%s stanza-create", stanza);
}

bool sl_lives_have(const struct sl_stanza *stanza, const char *id)
{
    for (uint32_t i = 0; i < stanza->life_count; i++)
        if (strcmp(stanza->lives[i].id, id) == 0)
            return true;
    return false;
}

/* 1, 0 when there is none of this number, or a code. */
static int read_list(struct sl_client *client, const char *engine, uint32_t number,
                     sl_deadline deadline, struct sl_stanza *stanza, struct sl_err *err)
{
    SL_CLEANUP_FREE char *json = NULL;
    size_t count = 0;
    char name[SL_LIVES_NAME];
    sl_lives_object(number, name);
    int rc = sl_client_fetch(client, name, LIST_BYTES_MAX, deadline, &json, &count, err);
    if (rc == SL_ERR_NOT_FOUND)
        return 0;
    if (!rc)
        rc = sl_stanza_decode(json, count, stanza, err);
    if (!rc && strcmp(stanza->engine, engine) != 0)
        rc = sl_err_set(err, SL_ERR_MISMATCH, "the stanza is one of engine \"%s\"", stanza->engine);
    return rc ? rc : 1;
}

int sl_lives_read(struct sl_client *client, const char *engine, sl_deadline deadline,
                  struct sl_stanza *ret_stanza, struct sl_err *err)
{
    memset(ret_stanza, 0, sizeof *ret_stanza);
    int rc = 1;
    for (uint32_t number = 1; rc == 1 && number <= SL_LIVES_MAX; number++)
        rc = read_list(client, engine, number, deadline, ret_stanza, err);
    return rc < 0 ? rc : ret_stanza->life_count > 0;
}

/* --- adding ------------------------------------------------------------------------------------
 */

static const struct sl_stanza_life *current(const struct sl_stanza *s)
{
    return &s->lives[s->life_count - 1];
}

static int compare(const struct sl_lives_words *words, const struct sl_stanza *s, const char *name,
                   const struct sl_stanza_life *life, struct sl_err *err)
{
    if (strcmp(current(s)->id, life->id) == 0)
        return 0;
    sl_err_set(err, SL_ERR_MISMATCH, "stanza \"%s\" is of %s %s (%s%s), not of %s", name,
               words->identity, current(s)->id, words->product, current(s)->version, life->id);
    return sl_err_hint(
        err, "another one needs a stanza of another name; if %s, run: sluice --stanza=%s %s",
        words->upgrade, name, "stanza-upgrade");
}

/* SL_ERR_EXISTS when somebody else was faster. */
static int add(struct sl_client *client, const struct sl_lives_words *words, struct sl_stanza *s,
               const struct sl_stanza_life *life, sl_deadline deadline, struct sl_err *err)
{
    SL_CLEANUP_FREE char *json = NULL;
    char name[SL_LIVES_NAME];
    struct sl_stored stored;
    if (s->life_count == SL_LIVES_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "the stanza has %d lives already", SL_LIVES_MAX);
    snprintf(s->engine, sizeof s->engine, "%s", words->engine);
    s->lives[s->life_count++] = *life;
    sl_lives_object(s->life_count, name);
    int rc = sl_stanza_encode(s, &json, err);
    return rc ? rc : sl_client_put(client, name, json, strlen(json), deadline, &stored, err);
}

static int add_or_compare(struct sl_client *client, const struct sl_lives_words *words,
                          struct sl_stanza *s, const char *name, const struct sl_stanza_life *life,
                          sl_deadline deadline, bool *ret_added, struct sl_err *err)
{
    int rc = add(client, words, s, life, deadline, err);
    *ret_added = !rc;
    if (rc != SL_ERR_EXISTS)
        return rc;
    rc = sl_lives_read(client, words->engine, deadline, s, err);
    return rc < 0 ? rc : compare(words, s, name, life, err);
}

static int extend(struct sl_client *client, const struct sl_lives_words *words, const char *name,
                  const struct sl_stanza_life *life, bool first, sl_deadline deadline,
                  bool *ret_added, struct sl_err *err)
{
    SL_CLEANUP_FREE struct sl_stanza *s = sl_calloc(1, sizeof *s);
    *ret_added = false;
    if (!s)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int there = sl_lives_read(client, words->engine, deadline, s, err);
    if (there < 0)
        return there;
    if (!there && !first)
        return sl_lives_missing(name, err);
    if (there && (first || strcmp(current(s)->id, life->id) == 0))
        return compare(words, s, name, life, err);
    if (!sl_lives_have(s, life->id))
        return add_or_compare(client, words, s, name, life, deadline, ret_added, err);
    sl_err_set(err, SL_ERR_MISMATCH, "%s %s was this stanza's before %s", words->identity, life->id,
               current(s)->id);
    return sl_err_hint(err, "what was there before needs a stanza of another name");
}

int sl_lives_create(struct sl_client *client, const struct sl_lives_words *words,
                    const char *stanza, const struct sl_stanza_life *life, sl_deadline deadline,
                    bool *ret_added, struct sl_err *err)
{
    return extend(client, words, stanza, life, true, deadline, ret_added, err);
}

int sl_lives_upgrade(struct sl_client *client, const struct sl_lives_words *words,
                     const char *stanza, const struct sl_stanza_life *life, sl_deadline deadline,
                     bool *ret_added, struct sl_err *err)
{
    return extend(client, words, stanza, life, false, deadline, ret_added, err);
}
