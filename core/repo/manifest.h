/* Backups: names, the manifest, pack indexes. docs/repository.md specifies the bytes.
 *
 *   <stanza>/backup/<label>/open       first: who makes it, what it refers to (JSON)
 *   <stanza>/backup/<label>/pack-0001  content of files, then the pack's index
 *   <stanza>/backup/<label>/manifest   last: with it the backup exists
 *
 * A manifest is a sequence of records, read and written as a stream; the memory it takes does not
 * grow with the number of files. A record is u8 kind, u32 bytes, body:
 *
 *   1 header   u16 version, string label, string prior label or "", u32 length and that many bytes
 *              of JSON: the engine's own facts (times, LSNs, backup_label, …)
 *   2 pack     u32 number, string object name below the stanza (of this or an earlier backup),
 *              u64 length, id content digest. Numbers are from 1, ascending, used by extents.
 *   3 entry    a file, folder or link; sorted bytewise by path: struct sl_entry_head, extents
 *   4 end      u64 entries, u64 bytes, 32 bytes SHA-256 over all bytes before this record
 *
 * A pack's index (the last index_bytes of its content) is records of kind 3 in the order the pack
 * was filled, then one of kind 4. An entry's piece in it says which part of the file it is
 * (`offset`); manifest entries have all pieces merged.
 *
 * Threads: nothing here locks or waits for anything but a temporary file; one object is used by one
 * thread at a time.
 */
#ifndef SL_REPO_MANIFEST_H
#define SL_REPO_MANIFEST_H

#include "core/base/err.h"
#include "core/wire/cursor.h"
#include "core/wire/message.h"

#include <stdio.h>

#define SL_MANIFEST_VERSION 1
#define SL_LABEL_MAX        64
#define SL_PATH_MAX         4096
#define SL_PACK_BYTES       (1ull << 30)
#define SL_EXTENTS_MAX      (1u << 20)
#define SL_RECORD_MAX       (64u * 1024 * 1024)
#define SL_HEADER_JSON_MAX  (16u * 1024 * 1024)

enum sl_record_kind { SL_RECORD_HEADER = 1, SL_RECORD_PACK, SL_RECORD_ENTRY, SL_RECORD_END };
enum sl_entry_kind { SL_ENTRY_FILE = 1, SL_ENTRY_FOLDER, SL_ENTRY_LINK };

struct sl_extent {
    uint64_t offset; /* in the file */
    uint64_t length;
    uint64_t pack_offset; /* in the pack's plain content */
    uint32_t pack;        /* number of a pack record; 0: zeros */
};

#define SL_ENTRY_HAS_CRC32C 0x1u

struct sl_manifest_entry {
    uint8_t kind; /* enum sl_entry_kind */
    uint8_t flags;
    uint32_t mode, uid, gid; /* mode: permission bits */
    uint64_t size, mtime_ns; /* 0 size for folders and links; ns since 1970 */
    uint32_t crc32c; /* of the whole file (of the piece, in a pack's index); 0 without the flag */
    char path[SL_PATH_MAX]; /* any byte but NUL, relative, no "." or "..", no leading, double or
                             * trailing '/' */
    char link[SL_PATH_MAX]; /* target of a link, "" for others */
    uint32_t extent_count;
    struct sl_extent *extents; /* sorted by offset, cover [0, size) of a file */
    uint32_t extent_room;      /* reader's: owned, grown as needed */
};

struct sl_manifest_pack {
    uint32_t number;
    char name[SL_NAME_MAX];
    uint64_t length;
    struct sl_id digest;
};

/* --- writing: any sink ----------------------------------------------------------------------- */

typedef int (*sl_manifest_sink)(void *arg, const void *bytes, size_t count, struct sl_err *err);

/* Checks order and completeness as it goes: what it wrote can be read. Entries come bytewise
 * strictly ascending by path, after the packs. After a failure the stream is worthless: later calls
 * fail with the same code. `prior` and `json` may be NULL. Returns owned. */
struct sl_manifest_writer;
int sl_manifest_writer_new(sl_manifest_sink sink, void *arg, const char *label, const char *prior,
                           const char *json, struct sl_manifest_writer **ret, struct sl_err *err);
int sl_manifest_write_pack(struct sl_manifest_writer *w, const struct sl_manifest_pack *pack,
                           struct sl_err *err);
int sl_manifest_write_entry(struct sl_manifest_writer *w, const struct sl_manifest_entry *entry,
                            struct sl_err *err);
int sl_manifest_write_end(struct sl_manifest_writer *w, struct sl_err *err);
void sl_manifest_writer_free(struct sl_manifest_writer *w); /* NULL ok */

/* --- reading: any source, fed in pieces ------------------------------------------------------ */

struct sl_manifest_visitor {
    /* each may be NULL; a nonzero return ends the reading with that code */
    int (*header)(void *arg, const char *label, const char *prior, const char *json);
    int (*pack)(void *arg, const struct sl_manifest_pack *pack);
    int (*entry)(void *arg, const struct sl_manifest_entry *entry);
    void *arg;
};

/* What a visitor is passed lives until it returns. It sees records before the end's sum was
 * checked: nothing may be taken for true before sl_manifest_finish(). SL_ERR_FORMAT, _CHECKSUM (the
 * SHA-256) or _VERSION for bytes that are no manifest. Returns owned. */
struct sl_manifest_reader;
int sl_manifest_reader_new(const struct sl_manifest_visitor *visitor,
                           struct sl_manifest_reader **ret, struct sl_err *err);
/* The same for the index of a pack: only entry() is called, once for each piece. */
int sl_pack_index_reader_new(const struct sl_manifest_visitor *visitor,
                             struct sl_manifest_reader **ret, struct sl_err *err);
int sl_manifest_feed(struct sl_manifest_reader *r, const void *bytes, size_t count,
                     struct sl_err *err);
/* All was fed: fails if the end record is missing or its sums are wrong. */
int sl_manifest_finish(struct sl_manifest_reader *r, uint64_t *ret_entries, uint64_t *ret_bytes,
                       struct sl_err *err);
void sl_manifest_reader_free(struct sl_manifest_reader *r);

/* --- fragments: entries that wait for the merge ---------------------------------------------- */

/* Each worker appends the pieces it has stored, in the order of paths it was given, to a nameless
 * temporary file in `folder` (NULL: $TMPDIR, else /tmp); the merge reads them all at once and joins
 * pieces of one path (extents, CRC). A piece covers one range of its file without a gap. A few
 * steps back in the order are fine (a file that is read last), disorder is SL_ERR_INTERNAL. */
struct sl_fragment;
int sl_fragment_new(const char *folder, struct sl_fragment **ret, struct sl_err *err);
void sl_fragment_free(struct sl_fragment *fragment);
int sl_fragment_add(struct sl_fragment *fragment, const struct sl_manifest_entry *piece,
                    struct sl_err *err);
/* Forget everything added after `mark` (a pack that is done over). */
uint64_t sl_fragment_mark(const struct sl_fragment *fragment);
int sl_fragment_rewind(struct sl_fragment *fragment, uint64_t mark, struct sl_err *err);
/* Write the pack's index (everything after `mark`, then an end record) to a sink, and say how long
 * it is: the index_bytes of the pack. */
int sl_fragment_index(struct sl_fragment *fragment, uint64_t mark, sl_manifest_sink sink, void *arg,
                      uint64_t *ret_bytes, struct sl_err *err);
/* Merge: entries in order of path to visit(), whose nonzero answer ends it. A file whose pieces do
 * not cover [0, size) once, or contradict each other, is SL_ERR_INTERNAL. Mode, owner and time are
 * the first piece's; a folder, link or empty file that was added twice comes once. */
int sl_fragments_merge(struct sl_fragment *const *fragments, size_t count,
                       int (*visit)(void *arg, const struct sl_manifest_entry *entry,
                                    struct sl_err *err),
                       void *arg, struct sl_err *err);

/* --- labels ---------------------------------------------------------------------------------- */

/* "20261130-162537F" as pgBackRest's: UTC time, F full; D diff, I incr with "_" after the prior
 * full's label (NULL for F). Makes one that is greater than `latest` (or NULL) in time and
 * bytewise, even if the clock went back. SL_ERR_USAGE when that cannot be (the prior full is older
 * than the latest one). */
int sl_label_new(char kind, const char *prior_full, const char *latest, char label[SL_LABEL_MAX],
                 struct sl_err *err);
bool sl_label_valid(const char *label);
/* The time of the backup itself in its label ("20261201-030000D" of a differential one). */
const char *sl_label_stamp(const char *label);
/* Does `label` belong to the full backup of `other`'s set (the same full, or the full itself)? */
bool sl_label_same_set(const char *label, const char *other);

/* --- stanza.json ----------------------------------------------------------------------------- */

#define SL_LIVES_MAX 64
struct sl_stanza_life {
    char id[64]; /* the engine's identity of a cluster's life: PostgreSQL's system identifier */
    char version[32]; /* the engine's version: "15" */
    uint64_t created_ns;
};
struct sl_stanza {
    char engine[32];
    uint32_t life_count; /* the last one is current */
    struct sl_stanza_life lives[SL_LIVES_MAX];
};
/* JSON on one line, newline at the end; returns owned (sl_free). Decoding leaves `stanza` alone
 * when it fails: SL_ERR_FORMAT, or _VERSION for a later one. */
int sl_stanza_encode(const struct sl_stanza *stanza, char **ret_json, struct sl_err *err);
int sl_stanza_decode(const char *json, size_t count, struct sl_stanza *stanza, struct sl_err *err);

#endif
