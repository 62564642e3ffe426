/* The journal of a growing object: what lies in its file. docs/repository.md is the specification.
 * Pure: bytes to bytes.
 *
 *   head      4096 bytes: what this is, whose it is, a random id
 *   records   each at a multiple of SL_JOURNAL_ALIGN behind the head: a record head of 64 bytes,
 * then its part of the content, then zeros up to the next multiple
 *
 * A record head has a digest of its own, into which the journal's id goes, so that no record of
 * another journal is taken for one of this.
 */
#ifndef SL_OBJECT_JOURNAL_H
#define SL_OBJECT_JOURNAL_H

#include "core/object/object.h"

#define SL_JOURNAL_SUFFIX       ".growing"
#define SL_JOURNAL_VERSION      1
#define SL_JOURNAL_HEAD_BYTES   4096u
#define SL_JOURNAL_RECORD_BYTES 64u /* the head of a record */
#define SL_JOURNAL_ALIGN        64u
/* Flags of a record. */
#define SL_JOURNAL_MARK 0x01u /* content may be continued behind this record */

struct sl_journal_head {
    struct sl_id repository, journal; /* the second is random */
    uint64_t created_ns;
    char creator[64];
    char name[SL_FULL_NAME_MAX]; /* of the object that it will be, without suffix */
};

struct sl_journal_record {
    uint32_t bytes;   /* of content, 1 to SL_BLOCK_BYTES */
    uint8_t flags;    /* SL_JOURNAL_MARK */
    uint64_t offset;  /* of them, in the object's content */
    uint64_t durable; /* so much of the content was durable before this was written; ≤ offset */
    struct sl_id digest; /* of these bytes, the repository's seed */
};

void sl_journal_head_encode(const struct sl_journal_head *head,
                            uint8_t bytes[SL_JOURNAL_HEAD_BYTES]);
/* Checks magic, digest, version, padding. Repository and name are the caller's to compare.
 * SL_ERR_FORMAT, SL_ERR_CHECKSUM or SL_ERR_VERSION. */
int sl_journal_head_decode(const uint8_t bytes[SL_JOURNAL_HEAD_BYTES], struct sl_journal_head *head,
                           struct sl_err *err);
void sl_journal_record_encode(const struct sl_journal_record *record, uint64_t seed,
                              const struct sl_id *journal, uint8_t bytes[SL_JOURNAL_RECORD_BYTES]);
/* 0, or SL_ERR_CHECKSUM when it is no head of a record of this journal. */
int sl_journal_record_decode(const uint8_t bytes[SL_JOURNAL_RECORD_BYTES], uint64_t seed,
                             const struct sl_id *journal, struct sl_journal_record *record);
/* How much of the file a record takes. */
uint64_t sl_journal_record_room(const struct sl_journal_record *record);
/* Is this the name of a journal? */
bool sl_journal_name(const char *name);

#endif
