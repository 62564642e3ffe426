/* Messages of the control connection. docs/wire.md explains the conversation; this file is the
 * list of messages and their fields, from which structs, encoder and decoder are made.
 *
 * A frame is u32 length (of what follows, 2..SL_FRAME_MAX), u16 type, body. The body is the
 * message's fields in order; a decoder accepts exactly them and nothing after. Integers are
 * little-endian. A field kind is
 *
 *   u8 u16 u32 u64      an integer
 *   id                  16 bytes
 *   str(N)              a string of at most N-1 bytes, no NUL
 *   rest                all that is left of the body (a pointer into the frame): the list-like
 *                       messages, whose elements have encoders of their own below
 *
 * c→t: from client to target. "object" numbers are chosen by the client, unique while open;
 * "request" numbers likewise. An ERROR with `about` = that number and `kind` answers in place of
 * the positive reply.
 */
#ifndef SL_WIRE_MESSAGE_H
#define SL_WIRE_MESSAGE_H

#include "core/base/err.h"
#include "core/wire/cursor.h"

#define SL_WIRE_VERSION     1
#define SL_WIRE_VERSION_MIN 1
#define SL_FRAME_HEAD_BYTES 6
#define SL_FRAME_MAX        (64u * 1024) /* length field's greatest value */
#define SL_BODY_MAX         (SL_FRAME_MAX - 2u)
#define SL_NAME_MAX         512 /* object names: path below the stanza */
#define SL_STANZA_MAX       64
#define SL_BLOCK_BYTES      (1024u * 1024) /* the unit of transfer and of digests */
#define SL_SLOT_NONE        UINT32_MAX
/* Objects whose last component begins so may be removed by who made them, too. */
#define SL_LEASE_PREFIX "lease-"

struct sl_id {
    uint8_t bytes[16];
};

/* What a client may ask for in `transport`, and what was chosen. */
enum sl_transport_kind {
    SL_TRANSPORT_AUTO,
    SL_TRANSPORT_RDMA,
    SL_TRANSPORT_TCP,
    SL_TRANSPORT_LOCAL
};
/* How blocks are protected on lanes. */
enum sl_seal_kind { SL_SEAL_AUTO, SL_SEAL_OFF, SL_SEAL_ON };
/* What an ERROR is about. */
enum sl_about { SL_ABOUT_SESSION, SL_ABOUT_OBJECT, SL_ABOUT_REQUEST, SL_ABOUT_LANE };
/* STORED.outcome */
enum sl_outcome { SL_STORED_CREATED = 1, SL_STORED_IDENTICAL = 2 };
/* Block flags in OFFER and SENT, and in an object's footer. */
#define SL_BLOCK_ZERO 0x01u /* all bytes are zero: nothing is transferred or stored */
/* … in OFFER only, of a growing object: it may be continued behind this block. */
#define SL_BLOCK_MARK 0x02u
/* HELLO.features, WELCOME.features */
#define SL_FEATURE_GROW 0x1u /* growing objects */

/* M(type number, NAME, name) — the struct is `struct sl_msg_<name>`, fields in
 * SL_MSG_<NAME>_FIELDS. */
#define SL_MESSAGES(M)                                                                             \
    M(1, HELLO, hello)         /* c→t first message */                                           \
    M(2, WELCOME, welcome)     /* t→c answer to HELLO */                                         \
    M(3, HEARTBEAT, heartbeat) /* both, when idle */                                               \
    M(4, ERROR, error)         /* both */                                                          \
    M(5, BYE, bye)             /* both: orderly end, nothing follows */                            \
    M(6, MEMORY, memory)       /* c→t where the slots are, for one rail */                       \
    M(7, LANE_UP, lane_up)     /* t→c: a lane is ready for use on the target's side */           \
    M(8, LANE_DOWN, lane_down) /* both: a lane is dead; its work is redone on others */            \
    M(10, CREATE, create)      /* c→t begin an object */                                         \
    M(11, OFFER, offer)        /* c→t blocks that lie in slots */                                \
    M(12, TAKEN, taken)        /* t→c slots that are free again */                               \
    M(13, COMMIT, commit)      /* c→t all blocks were offered: publish */                        \
    M(14, STORED, stored)      /* t→c published and durable */                                   \
    M(15, ABORT, abort)        /* c→t drop an object that was not committed */                   \
    M(16, GROW, grow)          /* c→t begin or continue a growing object */                      \
    M(17, GROWN, grown)        /* t→c it is open, and how long */                                \
    M(18, GREW, grew)          /* t→c more of it is durable */                                   \
    M(19, SEAL, seal)          /* c→t it has ended: publish it as a plain object */              \
    M(20, OPEN, open)          /* c→t open a published object for reading */                     \
    M(21, OPENED, opened)      /* t→c */                                                         \
    M(22, TABLE, table)        /* c→t ask for leaf digests */                                    \
    M(23, TABLED, tabled)      /* t→c */                                                         \
    M(24, GET, get)            /* c→t blocks wanted, each into a slot */                         \
    M(25, SENT, sent)          /* t→c blocks pushed; a notice follows each on its lane */        \
    M(26, CLOSE, close)        /* c→t */                                                         \
    M(30, STAT, stat)          /* c→t */                                                         \
    M(31, STATED, stated)      /* t→c */                                                         \
    M(32, LIST, list)          /* c→t */                                                         \
    M(33, LISTED, listed)      /* t→c */                                                         \
    M(34, VERIFY, verify)      /* c→t check every object below a name */                         \
    M(35, VERIFIED, verified)  /* t→c progress, and the end */                                   \
    M(36, DAMAGE, damage)      /* t→c one object that failed its check */                        \
    M(37, SPACE, space)        /* c→t */                                                         \
    M(38, SPACED, spaced)      /* t→c */                                                         \
    M(39, REMOVE, remove)      /* c→t delete an object (role "expire") */                        \
    M(40, REMOVED, removed)    /* t→c */                                                         \
    M(41, SWEEP, sweep)        /* c→t delete what broken-off writers left (role "expire") */     \
    M(42, SWEPT, swept)        /* t→c */

/* Fields: F(kind, name). */
#define SL_MSG_HELLO_FIELDS(F)                                                                     \
    F(u16, version)      /* highest the client speaks */                                           \
    F(u16, version_min)  /* lowest */                                                              \
    F(u64, features)     /* bits: SL_FEATURE_ */                                                   \
    F(str64, software)   /* "sluice 0.1.0", for the log */                                         \
    F(str64, host)       /* host name of the client, for the log */                                \
    F(str64, stanza)     /* the stanza of the whole session */                                     \
    F(u8, transport)     /* enum sl_transport_kind wanted */                                       \
    F(u8, seal)          /* enum sl_seal_kind wanted */                                            \
    F(u16, lanes)        /* lanes the client would like */                                         \
    F(u32, slots)        /* slots the client has */                                                \
    F(u32, slot_bytes)   /* SL_BLOCK_BYTES in version 1 */                                         \
    F(u32, slots_pulled) /* so many, the lowest, may be pulled from; into the others be pushed */

#define SL_MSG_WELCOME_FIELDS(F)                                                                   \
    F(u16, version)  /* chosen */                                                                  \
    F(u64, features) /* bits both have */                                                          \
    F(str64, software)                                                                             \
    F(id, session)       /* random; names the session in lane hellos */                            \
    F(id, repository)    /* its UUID */                                                            \
    F(u64, digest_seed)  /* of the repository */                                                   \
    F(u16, rdma_port)    /* 0: the target has no RDMA */                                           \
    F(str160, rdma_note) /* why not, or the devices it has */                                      \
    F(u8, seal)          /* wanted by the target: SL_SEAL_AUTO, _OFF or _ON (stricter wins) */     \
    F(u16, lanes)        /* at most */                                                             \
    F(u16, depth)        /* most pulls or pushes in flight on a lane */                            \
    F(u32, objects)      /* most objects open for writing at once */                               \
    F(u32, heartbeat_ms) /* send one when idle for so long */                                      \
    F(u32, dead_ms)      /* silence that means death */                                            \
    F(u64, wall_ns)      /* the target's clock, for skew warnings */                               \
    F(str64, store)      /* store driver: "posix" */

#define SL_MSG_HEARTBEAT_FIELDS(F) F(u64, wall_ns)
#define SL_MSG_ERROR_FIELDS(F)                                                                     \
    F(u16, code)  /* -enum sl_code */                                                              \
    F(u8, kind)   /* enum sl_about; SESSION: the sender closes after it */                         \
    F(u32, about) /* object, request or lane number */                                             \
    F(str768, text)                                                                                \
    F(str384, hint)
#define SL_MSG_BYE_FIELDS(F) F(u8, reason) /* 0 done, 1 shutting down */
#define SL_MSG_MEMORY_FIELDS(F)                                                                    \
    F(u16, rail)    /* as in the lanes' hellos */                                                  \
    F(u8, access)   /* 1 the slots that may be pulled from, 2 those that may be pushed into */     \
    F(u64, address) /* of the first of them */                                                     \
    F(u32, key)                                                                                    \
    F(u64, length)
#define SL_MSG_LANE_UP_FIELDS(F)   F(u16, lane) F(u16, rail)
#define SL_MSG_LANE_DOWN_FIELDS(F) F(u16, lane) F(str160, reason)
#define SL_MSG_CREATE_FIELDS(F)                                                                    \
    F(u32, object)                                                                                 \
    F(u64, length_hint)                        /* expected plain bytes, 0: unknown */              \
    F(str512, name)                            /* path below the stanza */
#define SL_MSG_OFFER_FIELDS(F) F(rest, offers) /* struct sl_offer each */
#define SL_MSG_TAKEN_FIELDS(F) F(rest, slots)  /* u32 each */
#define SL_MSG_COMMIT_FIELDS(F)                                                                    \
    F(u32, object)                                                                                 \
    F(u64, length)      /* plain bytes of the content */                                           \
    F(u64, index_bytes) /* how many at the content's end are an index, 0: none */                  \
    F(id, digest)       /* content digest; the target computes it itself and compares */
#define SL_MSG_STORED_FIELDS(F) F(u32, object) F(u8, outcome) F(id, digest)
#define SL_MSG_ABORT_FIELDS(F)  F(u32, object)
#define SL_MSG_GROW_FIELDS(F)                                                                      \
    F(u32, object)                                                                                 \
    F(u64, known) /* so much of it the client knows to be durable, 0: nothing */                   \
    F(str512, name)
#define SL_MSG_GROWN_FIELDS(F) F(u32, object) F(u64, length) /* all durable: append from there */
#define SL_MSG_GREW_FIELDS(F)  F(u32, object) F(u64, length) /* so much is durable */
#define SL_MSG_SEAL_FIELDS(F)                                                                      \
    F(u32, object)                                                                                 \
    F(u64, length) /* of the content, all durable */                                               \
    F(u8, codec)   /* how blocks are packed where that helps */                                    \
    F(u8, level)
#define SL_MSG_OPEN_FIELDS(F) F(u32, object) F(str512, name)
#define SL_MSG_OPENED_FIELDS(F)                                                                    \
    F(u32, object)                                                                                 \
    F(u64, length) F(u64, index_bytes) F(id, digest) F(u64, created_ns) F(str64, creator)
#define SL_MSG_TABLE_FIELDS(F)  F(u32, object) F(u32, first) F(u32, count)    /* count ≤ 4000 */
#define SL_MSG_TABLED_FIELDS(F) F(u32, object) F(u32, first) F(rest, digests) /* 16 bytes each */
#define SL_MSG_GET_FIELDS(F)    F(rest, gets)   /* struct sl_get each */
#define SL_MSG_SENT_FIELDS(F)   F(rest, blocks) /* struct sl_sent each */
#define SL_MSG_CLOSE_FIELDS(F)  F(u32, object)
#define SL_MSG_STAT_FIELDS(F)   F(u32, request) F(str512, name)
#define SL_MSG_STATED_FIELDS(F)                                                                    \
    F(u32, request) F(u8, exists) F(u64, length) F(id, digest) F(u64, created_ns) F(str64, creator)
#define SL_MSG_LIST_FIELDS(F)                                                                      \
    F(u32, request)                                                                                \
    F(str512, name)  /* folder below the stanza, "" is the stanza itself */                        \
    F(str512, after) /* only names greater (bytewise) than this */                                 \
    F(u32, limit)    /* at most; the target may return fewer and set `more` */
#define SL_MSG_LISTED_FIELDS(F) F(u32, request) F(u8, more) F(rest, entries) /* sl_entry each */
#define SL_MSG_VERIFY_FIELDS(F) F(u32, request) F(str512, name)
#define SL_MSG_VERIFIED_FIELDS(F)                                                                  \
    F(u32, request) F(u8, done) F(u64, objects) F(u64, bytes) F(u64, damaged) F(u64, total_bytes)
#define SL_MSG_DAMAGE_FIELDS(F)  F(u32, request) F(u16, code) F(str512, name) F(str768, text)
#define SL_MSG_SPACE_FIELDS(F)   F(u32, request)
#define SL_MSG_SPACED_FIELDS(F)  F(u32, request) F(u64, free_bytes) F(u64, total_bytes)
#define SL_MSG_REMOVE_FIELDS(F)  F(u32, request) F(str512, name)
#define SL_MSG_REMOVED_FIELDS(F) F(u32, request)
#define SL_MSG_SWEEP_FIELDS(F)   F(u32, request) F(u64, age_ns) /* not written to for so long */
#define SL_MSG_SWEPT_FIELDS(F)   F(u32, request) F(u64, removed)

/* Struct members by kind. */
#define SL_MEMBER_u8(name)     uint8_t name;
#define SL_MEMBER_u16(name)    uint16_t name;
#define SL_MEMBER_u32(name)    uint32_t name;
#define SL_MEMBER_u64(name)    uint64_t name;
#define SL_MEMBER_id(name)     struct sl_id name;
#define SL_MEMBER_str64(name)  char name[64];
#define SL_MEMBER_str160(name) char name[160];
#define SL_MEMBER_str384(name) char name[384];
#define SL_MEMBER_str512(name) char name[512];
#define SL_MEMBER_str768(name) char name[768];
#define SL_MEMBER_rest(name)                                                                       \
    const uint8_t *name;                                                                           \
    size_t name##_bytes;
#define SL_MEMBER(kind, name) SL_MEMBER_##kind(name)

enum sl_msg_type {
#define M(number, NAME, name) SL_MSG_##NAME = number,
    SL_MESSAGES(M)
#undef M
};

#define M(number, NAME, name)                                                                      \
    struct sl_msg_##name {                                                                         \
        SL_MSG_##NAME##_FIELDS(SL_MEMBER)                                                          \
    };
SL_MESSAGES(M)
#undef M

struct sl_msg {
    enum sl_msg_type type;
    union {
#define M(number, NAME, name) struct sl_msg_##name name;
        SL_MESSAGES(M)
#undef M
    };
};

/* Encode one message as a whole frame into `frame` (room of `bytes`). Returns the frame's
 * length, or SL_ERR_LIMIT when it does not fit there or exceeds SL_FRAME_MAX. */
int sl_msg_encode(const struct sl_msg *msg, uint8_t *frame, size_t bytes);

/* Decode the body of a frame (what follows its length field: type and fields). `rest` fields
 * point into `body`, which must outlive `msg`. Returns 0 or SL_ERR_PROTOCOL. */
int sl_msg_decode(const uint8_t *body, size_t bytes, struct sl_msg *msg);

const char *sl_msg_name(int type); /* "OFFER", or "?" */

/* --- elements of list-like messages --------------------------------------------------------- */

/* A block that lies in a slot, ready to be pulled. */
struct sl_offer {
    uint32_t object, block;     /* block: index in the object, from 0 */
    uint32_t slot;              /* SL_SLOT_NONE for a zero block */
    uint32_t stored_bytes;      /* in the slot, without the seal's tag; 0 for a zero block */
    uint32_t plain_bytes;       /* 1..SL_BLOCK_BYTES; less than a block only for the last */
    uint8_t codec;              /* enum sl_codec (core/object/object.h) */
    uint8_t flags;              /* SL_BLOCK_… */
    struct sl_id plain_digest;  /* leaf digest of the plain bytes */
    struct sl_id stored_digest; /* of the stored bytes; equals plain_digest when codec is plain */
    uint64_t seal_number;       /* counter of the seal, 0 when lanes are not sealed */
    struct sl_id seal_tag;      /* zeros when lanes are not sealed */
};
#define SL_OFFER_BYTES (4 * 5 + 2 + 16 * 3 + 8)

/* A block wanted: push it into this slot. */
struct sl_get {
    uint32_t object, block, slot;
};
#define SL_GET_BYTES 12

/* A block that was pushed (or is zero: then nothing was). `push` is the number that the notice
 * on the lane carries; the block is there when both have come. */
struct sl_sent {
    struct sl_offer block;
    uint64_t push;
    int16_t code; /* 0, or why the block could not be read (-enum sl_code); then nothing was sent */
};
#define SL_SENT_BYTES (SL_OFFER_BYTES + 10)

/* One name in a folder. */
struct sl_entry {
    uint8_t is_folder;
    uint64_t length; /* plain content bytes as far as cheaply known (stored size), 0 for folders */
    char name[256];
};

void sl_offer_write(struct sl_writer *w, const struct sl_offer *offer);
void sl_offer_read(struct sl_reader *r, struct sl_offer *offer);
void sl_get_write(struct sl_writer *w, const struct sl_get *get);
void sl_get_read(struct sl_reader *r, struct sl_get *get);
void sl_sent_write(struct sl_writer *w, const struct sl_sent *sent);
void sl_sent_read(struct sl_reader *r, struct sl_sent *sent);
void sl_entry_write(struct sl_writer *w, const struct sl_entry *entry);
void sl_entry_read(struct sl_reader *r, struct sl_entry *entry);

/* --- lane hello ------------------------------------------------------------------------------ */

/* The first bytes on a lane, both ways: rdma_cm private data (56 bytes at most on RDMA_PS_TCP,
 * rdma_connect(3)), or the first bytes of a TCP lane. It ties the lane to its session: `mac` is
 * HMAC-SHA-256, cut to 16 bytes, over the bytes before it and a direction byte ('c' or 't'),
 * under a key exported from the session's TLS connection. Nothing is allocated for a lane before
 * it was checked. */
#define SL_LANE_HELLO_BYTES 52
#define SL_LANE_MAGIC       0x316e4c53u /* "SLn1": no TLS record starts so (RFC 8446 §5.1) */

struct sl_lane_hello {
    uint16_t version, flags;
    struct sl_id session;
    uint16_t lane; /* never used twice in a session */
    uint8_t rail;
    uint8_t depth; /* reads in flight the sender can serve */
    uint64_t nonce;
    struct sl_id mac;
};

void sl_lane_hello_encode(const struct sl_lane_hello *hello, uint8_t bytes[SL_LANE_HELLO_BYTES]);
/* Returns 0 or SL_ERR_PROTOCOL (wrong magic or version). Does not check the MAC. */
int sl_lane_hello_decode(const uint8_t *bytes, size_t length, struct sl_lane_hello *hello);

#endif
