/* A stanza's list of lives, as engines read and extend it: stanza.json, then stanza-2.json, … each
 * a whole list that is longer by one; the last one holds (docs/repository.md). Who the server is,
 * the engine finds out. */
#ifndef SL_CLI_LIVES_H
#define SL_CLI_LIVES_H

#include "core/client/client.h"
#include "core/repo/manifest.h"

#define SL_LIVES_NAME 24

/* What an engine calls things in messages. */
struct sl_lives_words {
    const char *engine;   /* "postgres" */
    const char *product;  /* before a version: "PostgreSQL ", or "" when the version says it */
    const char *identity; /* "system identifier" */
    const char *upgrade;  /* for the hint: when stanza-upgrade is right */
};

/* "stanza.json", then "stanza-2.json", … */
void sl_lives_object(uint32_t number, char name[SL_LIVES_NAME]);
/* 1 and the last list; 0 when there is none (`*ret_stanza` is all zeros then); or a code:
 * SL_ERR_MISMATCH when the stanza is another engine's. */
int sl_lives_read(struct sl_client *client, const char *engine, sl_deadline deadline,
                  struct sl_stanza *ret_stanza, struct sl_err *err);
/* SL_ERR_NOT_FOUND: that there is none, and what to type. */
int sl_lives_missing(const char *stanza, struct sl_err *err);
/* Was, or is, it this one's? */
bool sl_lives_have(const struct sl_stanza *stanza, const char *id);

/* What stanza-create does: the first life, or 0 when the current one is the same (`*ret_added` is
 * false then); SL_ERR_MISMATCH for another. Two at the same time: one adds, both succeed. */
int sl_lives_create(struct sl_client *client, const struct sl_lives_words *words,
                    const char *stanza, const struct sl_stanza_life *life, sl_deadline deadline,
                    bool *ret_added, struct sl_err *err);
/* What stanza-upgrade does: one more life. One that the stanza had before is SL_ERR_MISMATCH. */
int sl_lives_upgrade(struct sl_client *client, const struct sl_lives_words *words,
                     const char *stanza, const struct sl_stanza_life *life, sl_deadline deadline,
                     bool *ret_added, struct sl_err *err);

#endif
