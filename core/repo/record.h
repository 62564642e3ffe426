/* Records of manifests, pack indexes and fragments: encoding, decoding and the checks that all of
 * them share. Private to core/repo; docs/repository.md specifies the bytes. */
#ifndef SL_REPO_RECORD_H
#define SL_REPO_RECORD_H

#include "core/repo/manifest.h"

#include <openssl/evp.h>

#define SL_RECORD_HEAD_BYTES 5u /* u8 kind, u32 bytes */
#define SL_EXTENT_BYTES      28u
#define SL_SHA256_BYTES      32u
#define SL_END_BYTES         (8u + 8u + SL_SHA256_BYTES)
#define SL_PACKS_MAX         (1u << 20)

/* A path or name for messages: bytes that a terminal might obey are shown as '?'. */
#define SL_SHOWN_BYTES 200
const char *sl_shown(const char *path, char text[SL_SHOWN_BYTES]);

/* The whole record (head and body) of an entry. write() needs a writer with that much room. */
size_t sl_entry_record_bytes(const struct sl_manifest_entry *entry);
void sl_entry_record_write(struct sl_writer *w, const struct sl_manifest_entry *entry);
/* The body of an entry record. entry->extents is grown as needed (freed by the caller); the rest
 * of the entry may hold anything. Checks the shape of the encoding only. */
int sl_entry_body_read(const uint8_t *body, size_t bytes, struct sl_manifest_entry *entry,
                       struct sl_err *err);
/* Room for `count` extents in entry->extents. */
int sl_entry_extents_reserve(struct sl_manifest_entry *entry, uint32_t count, struct sl_err *err);
/* Is this a sane entry of a manifest (`whole`: the extents cover the file), or a sane piece (they
 * cover one range of it without a gap)? `*ret_bytes` = what the extents cover. The code is for
 * what came from outside: FORMAT. */
int sl_entry_check(const struct sl_manifest_entry *entry, bool whole, uint64_t *ret_bytes,
                   struct sl_err *err);

/* Known packs by number, ascending. */
struct sl_pack_known {
    uint32_t number;
    uint64_t length;
};
struct sl_pack_set {
    struct sl_pack_known *items;
    size_t count, room;
};
int sl_pack_set_add(struct sl_pack_set *set, uint32_t number, uint64_t length, struct sl_err *err);
const struct sl_pack_known *sl_pack_set_find(const struct sl_pack_set *set, uint32_t number);
/* Every extent of the entry lies in a known pack. */
int sl_pack_set_check(const struct sl_pack_set *set, const struct sl_manifest_entry *entry,
                      struct sl_err *err);
void sl_pack_set_fini(struct sl_pack_set *set);

/* Where records go: a buffer before a sink, and the sum over all that went through. */
struct sl_record_out {
    sl_manifest_sink sink;
    void *arg;
    EVP_MD_CTX *sha;
    uint8_t *buffer;
    size_t used, room;
    uint64_t total, entries, bytes; /* total: bytes of records so far */
};
int sl_record_out_init(struct sl_record_out *out, sl_manifest_sink sink, void *arg,
                       struct sl_err *err);
void sl_record_out_fini(struct sl_record_out *out);
/* Room for `bytes` more in the buffer, as a writer; sl_record_out_close() takes what was used. */
int sl_record_out_open(struct sl_record_out *out, size_t bytes, struct sl_writer *ret_writer,
                       struct sl_err *err);
int sl_record_out_close(struct sl_record_out *out, const struct sl_writer *w, struct sl_err *err);
/* Bytes that are records already. */
int sl_record_out_raw(struct sl_record_out *out, const void *bytes, size_t count,
                      struct sl_err *err);
/* The end record, and everything to the sink. */
int sl_record_out_end(struct sl_record_out *out, struct sl_err *err);

EVP_MD_CTX *sl_sha256_new(struct sl_err *err);
int sl_sha256_add(EVP_MD_CTX *sha, const void *bytes, size_t count, struct sl_err *err);
int sl_sha256_end(EVP_MD_CTX *sha, uint8_t digest[SL_SHA256_BYTES], struct sl_err *err);

#endif
