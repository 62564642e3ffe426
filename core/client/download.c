/* Downloads: an object's leaf digests fetched and checked against its content digest, then its
 * blocks, asked for ahead, given in order.
 *
 * A block is checked only after it was copied (or unsealed) from its slot into memory that the
 * target cannot reach: the slot is its to write as long as the session lives, and what was checked
 * there could change before it is used. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/client/client_internal.h"

#include <stdio.h>
#include <string.h>

/* --- opening --------------------------------------------------------------------------------- */

static int prepare(struct sl_download *download, struct sl_err *err)
{
    struct session *session = download->object.session;
    download->buffer = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!download->buffer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    return session->sealed ? sl_sealer_new(session->secret_down, &download->sealer, err) : 0;
}

void sl_client_download_fini(struct sl_download *download)
{
    sl_sealer_free(download->sealer);
    sl_unpacker_free(download->unpacker);
    sl_pages_free(download->packed, SL_BLOCK_BYTES);
    sl_pages_free(download->buffer, SL_BLOCK_BYTES);
    sl_free(download->leaves);
}

static int check(struct sl_download *download, struct sl_err *err)
{
    int rc = sl_client_session_check(download->object.session, err);
    return rc ? rc : sl_client_object_error(&download->object, err);
}

/* With the lock held: until `*done` or a failure. */
static int await(struct sl_download *download, const bool *done, sl_deadline deadline,
                 struct sl_err *err)
{
    struct session *session = download->object.session;
    int rc = 0;
    while (!rc && !*done) {
        rc = sl_client_object_error(&download->object, err);
        if (!rc)
            rc = sl_client_session_wait(session, &download->object.changed, deadline, err);
    }
    return rc ? rc : sl_client_object_error(&download->object, err);
}

static int open_object(struct sl_download *download, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = download->object.session;
    struct sl_msg msg = {.type = SL_MSG_OPEN};
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_session_check(session, err);
    while (!rc && session->reading >= session->welcome.objects)
        rc = sl_client_session_wait(session, &session->changed, deadline, err);
    if (!rc) {
        sl_client_object_list(session, &download->object);
        session->downloads++;
        msg.open.object = download->object.number;
        strcpy(msg.open.name, download->object.name); /* both of SL_NAME_MAX */
        sl_client_session_send(session, &msg);
        rc = await(download, &download->object.answered,
                   sl_client_session_io_deadline(session, deadline), err);
    }
    pthread_mutex_unlock(&session->lock);
    return rc;
}

static bool have_leaves(const struct sl_download *download)
{
    return download->leaves_got == download->blocks;
}

static int fetch_leaves(struct sl_download *download, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = download->object.session;
    pthread_mutex_lock(&session->lock);
    for (uint32_t first = 0; first < download->blocks; first += TABLE_MAX) {
        uint32_t left = download->blocks - first;
        struct sl_msg msg = {.type = SL_MSG_TABLE};
        msg.table = (struct sl_msg_table){.object = download->object.number,
                                          .first = first,
                                          .count = left < TABLE_MAX ? left : TABLE_MAX};
        sl_client_session_send(session, &msg);
    }
    deadline = sl_client_session_io_deadline(session, deadline);
    int rc = check(download, err);
    while (!rc && !have_leaves(download)) {
        rc = sl_client_session_wait(session, &download->object.changed, deadline, err);
        if (!rc)
            rc = sl_client_object_error(&download->object, err);
    }
    pthread_mutex_unlock(&session->lock);
    return rc;
}

static int check_digest(struct sl_download *download, const struct sl_id *expect,
                        struct sl_err *err)
{
    char a[SL_ID_TEXT], b[SL_ID_TEXT];
    const struct sl_id *stated = &download->info.digest;
    struct sl_id digest = sl_digest_content(download->object.session->welcome.digest_seed,
                                            download->leaves, download->blocks);
    if (!sl_id_equal(&digest, stated))
        return sl_err_set(err, SL_ERR_CHECKSUM,
                          "the digests of its blocks do not give its content digest (%s, not %s)",
                          sl_id_text(&digest, a), sl_id_text(stated, b));
    if (expect && !sl_id_equal(&digest, expect))
        return sl_err_set(err, SL_ERR_CHECKSUM, "its content digest is %s, expected was %s",
                          sl_id_text(&digest, a), sl_id_text(expect, b));
    return 0;
}

static int learn(struct sl_download *download, const struct sl_id *expect, sl_deadline deadline,
                 struct sl_err *err)
{
    uint64_t length = download->info.length;
    if (length > (uint64_t)SL_OBJECT_BLOCKS_MAX * SL_BLOCK_BYTES ||
        download->info.index_bytes > length)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the target says it has %llu bytes",
                          (unsigned long long)length);
    uint32_t blocks = sl_blocks_of(length);
    struct sl_id *leaves = sl_calloc(blocks, sizeof *leaves);
    if (!leaves)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&download->object.session->lock);
    download->leaves = leaves;
    download->blocks = download->end = blocks;
    pthread_mutex_unlock(&download->object.session->lock);
    int rc = blocks ? fetch_leaves(download, deadline, err) : 0;
    return rc ? rc : check_digest(download, expect, err);
}

int sl_download_open(struct sl_client *client, const char *name, const struct sl_id *expect,
                     sl_deadline deadline, struct sl_download **ret_download,
                     struct sl_object_info *ret_info, struct sl_err *err)
{
    struct session *session;
    int rc = sl_client_session(client, deadline, &session, err);
    if (rc)
        return rc;
    struct sl_download *download = sl_calloc(1, sizeof *download);
    rc = download ? sl_client_object_init(&download->object, OBJECT_DOWNLOAD, session, name, err)
                  : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc) {
        sl_free(download);
        sl_client_session_unref(session);
        return rc;
    }
    rc = prepare(download, err);
    if (!rc)
        rc = open_object(download, deadline, err);
    if (!rc)
        rc = learn(download, expect, deadline, err);
    if (rc) {
        sl_err_prefix(err, "\"%s\"", name);
        sl_download_close(download);
        return rc;
    }
    *ret_download = download;
    if (ret_info)
        *ret_info = download->info;
    return 0;
}

/* --- what the target says (control thread, lock held) ------------------------------------------
 */

static struct sl_download *find(struct session *session, uint32_t number, const char *what,
                                bool opened, int *rc, struct sl_err *err)
{
    struct object *object = sl_client_object_find(session, number);
    *rc = 0;
    if (!object && number < session->next_object)
        return NULL; /* closed here meanwhile */
    if (!object || object->kind != OBJECT_DOWNLOAD || object->answered != opened) {
        *rc = sl_err_set(err, SL_ERR_PROTOCOL, "unexpected %s of object %u", what, number);
        return NULL;
    }
    return (struct sl_download *)object;
}

int sl_client_download_opened(struct session *session, const struct sl_msg_opened *opened,
                              struct sl_err *err)
{
    int rc;
    struct sl_download *download = find(session, opened->object, "OPENED", false, &rc, err);
    if (!download)
        return rc;
    download->info = (struct sl_object_info){.length = opened->length,
                                             .index_bytes = opened->index_bytes,
                                             .created_ns = opened->created_ns,
                                             .digest = opened->digest};
    snprintf(download->info.creator, sizeof download->info.creator, "%s", opened->creator);
    download->object.answered = true;
    pthread_cond_broadcast(&download->object.changed);
    return 0;
}

int sl_client_download_tabled(struct session *session, const struct sl_msg_tabled *tabled,
                              struct sl_err *err)
{
    int rc;
    struct sl_download *download = find(session, tabled->object, "TABLED", true, &rc, err);
    if (!download)
        return rc;
    size_t count = tabled->digests_bytes / sizeof(struct sl_id);
    if (tabled->digests_bytes % sizeof(struct sl_id) || !count || !download->leaves ||
        tabled->first != download->leaves_got ||
        count > (size_t)(download->blocks - download->leaves_got))
        return sl_err_set(err, SL_ERR_PROTOCOL, "TABLED does not fit what was asked for");
    memcpy(&download->leaves[download->leaves_got], tabled->digests, tabled->digests_bytes);
    download->leaves_got += (uint32_t)count;
    pthread_cond_broadcast(&download->object.changed);
    return 0;
}

static struct want *want_of(struct sl_download *download, uint32_t block)
{
    for (unsigned i = 0; i < download->wants_count; i++) {
        struct want *want = &download->wants[(download->wants_first + i) % WINDOW_MAX];
        if (want->block == block)
            return want;
    }
    return NULL;
}

/* The slot is ours again, with the block in it, or `about` says why not. */
void sl_client_download_arrived(struct sl_download *download, uint32_t slot,
                                const struct sl_sent *about)
{
    struct want *want = want_of(download, about->block.block);
    if (!want || want->state != WANT_ASKED || want->slot != slot) {
        sl_client_slot_release(download->object.session, slot);
        return;
    }
    want->about = about->block;
    want->state = about->code ? WANT_FAILED : WANT_ARRIVED;
    want->code = about->code;
    if (about->code || (about->block.flags & SL_BLOCK_ZERO)) {
        sl_client_slot_release(download->object.session, slot);
        want->slot = SL_SLOT_NONE;
    }
    pthread_cond_broadcast(&download->object.changed);
}

/* --- asking (lock held) ---------------------------------------------------------------------- */

static bool known_zero(const struct sl_download *download, uint32_t block)
{
    struct sl_id zeros = sl_digest_zeros(download->object.session->welcome.digest_seed,
                                         sl_block_length(download->info.length, block));
    return sl_id_equal(&zeros, &download->leaves[block]);
}

/* The block is put into this slot. */
static void give_slot(struct sl_download *download, struct want *want, uint32_t slot)
{
    *want = (struct want){
        .state = WANT_ASKED, .block = want->block, .slot = slot, .again = want->again};
    download->object.session->slots.all[slot] = (struct slot){.state = SLOT_GOT,
                                                              .download = download,
                                                              .object = download->object.number,
                                                              .block = want->block};
}

static void send_gets(struct session *session, const struct sl_get *gets, unsigned count)
{
    uint8_t bytes[WINDOW_MAX * SL_GET_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    if (!count)
        return;
    for (unsigned i = 0; i < count; i++)
        sl_get_write(&w, &gets[i]);
    struct sl_msg msg = {.type = SL_MSG_GET};
    msg.get = (struct sl_msg_get){bytes, sl_writer_used(&w)};
    sl_client_session_send(session, &msg);
}

static unsigned window(const struct sl_download *download)
{
    const struct session *session = download->object.session;
    uint32_t share =
        session->slots.pools[SLOT_PUSHED].count / (session->downloads ? session->downloads : 1);
    return share > WINDOW_MAX ? WINDOW_MAX : share ? share : 1;
}

/* Appends the next block of the range to the wants; with no slot it is one that is known. */
static void want_next(struct sl_download *download, uint32_t slot, struct sl_get *get)
{
    unsigned at = (download->wants_first + download->wants_count++) % WINDOW_MAX;
    struct want *want = &download->wants[at];
    *want = (struct want){.block = download->asked++, .slot = SL_SLOT_NONE, .state = WANT_ARRIVED};
    if (slot == SL_SLOT_NONE) {
        want->about.flags = SL_BLOCK_ZERO;
        return;
    }
    give_slot(download, want, slot);
    *get = (struct sl_get){download->object.number, want->block, slot};
}

/* As much read-ahead as window and free slots allow, never waiting. */
static void ask_ahead(struct sl_download *download)
{
    struct session *session = download->object.session;
    struct sl_get gets[WINDOW_MAX];
    unsigned count = 0, most = window(download);
    while (download->asked < download->end && download->wants_count < most) {
        uint32_t slot = SL_SLOT_NONE;
        bool zero = known_zero(download, download->asked);
        if (!zero && !sl_client_slot_try(session, SLOT_PUSHED, &slot))
            break;
        want_next(download, slot, &gets[count]);
        count += !zero;
    }
    send_gets(session, gets, count);
}

/* The block that is to be given next is asked for, even if that means to wait for a slot. */
static int ask_next(struct sl_download *download, sl_deadline deadline, struct sl_err *err)
{
    ask_ahead(download);
    if (download->wants_count)
        return 0;
    uint32_t slot;
    struct sl_get get;
    int rc = sl_client_slot_take(download->object.session, SLOT_PUSHED, deadline, &slot, err);
    if (rc)
        return rc;
    want_next(download, slot, &get);
    send_gets(download->object.session, &get, 1);
    return 0;
}

static int ask_again(struct sl_download *download, struct want *want, sl_deadline deadline,
                     struct sl_err *err)
{
    uint32_t slot;
    int rc = sl_client_slot_take(download->object.session, SLOT_PUSHED, deadline, &slot, err);
    if (rc)
        return rc;
    want->again = true;
    give_slot(download, want, slot);
    struct sl_get get = {download->object.number, want->block, slot};
    send_gets(download->object.session, &get, 1);
    return 0;
}

static void forget_wants(struct sl_download *download)
{
    struct session *session = download->object.session;
    for (; download->wants_count; download->wants_count--) {
        struct want *want = &download->wants[download->wants_first];
        download->wants_first = (download->wants_first + 1) % WINDOW_MAX;
        if (want->slot == SL_SLOT_NONE)
            continue;
        if (want->state == WANT_ASKED)
            session->slots.all[want->slot].download = NULL; /* freed when the answer comes */
        else
            sl_client_slot_release(session, want->slot);
    }
}

int sl_download_range(struct sl_download *download, uint32_t first, uint32_t count,
                      struct sl_err *err)
{
    struct session *session = download->object.session;
    if (first > download->blocks || count > download->blocks - first)
        return sl_err_set(err, SL_ERR_USAGE, "\"%s\" has %u blocks, asked for were %u from %u on",
                          download->object.name, download->blocks, count, first);
    pthread_mutex_lock(&session->lock);
    forget_wants(download);
    download->next = download->asked = first;
    download->end = first + count;
    int rc = check(download, err);
    if (!rc)
        ask_ahead(download);
    pthread_mutex_unlock(&session->lock);
    return rc;
}

/* --- giving ---------------------------------------------------------------------------------- */

static int prepare_unpacking(struct sl_download *download)
{
    if (!download->packed)
        download->packed = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!download->packed)
        return SL_ERR_NO_MEMORY;
    return download->unpacker ? 0 : sl_unpacker_new(&download->unpacker, NULL);
}

static int unpack(struct sl_download *download, const struct sl_offer *about, size_t length)
{
    const struct sl_client *client = download->object.session->client;
    uint64_t began = sl_client_stage_begin(client);
    int rc = sl_unpack(download->unpacker, about->codec, download->packed, about->stored_bytes,
                       download->buffer, length);
    sl_client_stage_end(client, SL_STAGE_PACK, began);
    return rc;
}

/* The stored bytes out of the slot, unsealed. */
static int empty_slot(struct sl_download *download, const struct want *want, uint8_t *to)
{
    struct session *session = download->object.session;
    const uint8_t *from = sl_client_slot_memory(&session->slots, want->slot);
    if (!download->sealer) {
        memcpy(to, from, want->about.stored_bytes);
        return 0;
    }
    uint64_t began = sl_client_stage_begin(session->client);
    int rc = sl_unseal(download->sealer, &want->about, from, to, NULL);
    sl_client_stage_end(session->client, SL_STAGE_SEAL, began);
    return rc;
}

/* From the slot into the private buffer; then it is checked. SL_ERR_CHECKSUM, or SL_ERR_CRYPTO,
 * when the bytes are not the block's. No lock held: the slot is ours. */
static int take_block(struct sl_download *download, const struct want *want, size_t length)
{
    struct session *session = download->object.session;
    const struct sl_offer *about = &want->about;
    const struct sl_id *leaf = &download->leaves[want->block];
    if (about->flags & SL_BLOCK_ZERO) {
        memset(download->buffer, 0, length);
        return known_zero(download, want->block) ? 0 : SL_ERR_CHECKSUM;
    }
    bool packed = about->codec != SL_CODEC_PLAIN;
    if (about->plain_bytes != length || !about->stored_bytes || about->stored_bytes > length ||
        (!packed && about->stored_bytes != length))
        return SL_ERR_CHECKSUM;
    int rc = packed ? prepare_unpacking(download) : 0;
    if (!rc)
        rc = empty_slot(download, want, packed ? download->packed : download->buffer);
    if (!rc && packed)
        rc = unpack(download, about, length);
    if (rc)
        return rc;
    uint64_t began = sl_client_stage_begin(session->client);
    struct sl_id digest = sl_digest(session->welcome.digest_seed, download->buffer, length);
    sl_client_stage_end(session->client, SL_STAGE_DIGEST, began);
    return sl_id_equal(&digest, leaf) ? 0 : SL_ERR_CHECKSUM;
}

static int block_error(struct sl_download *download, uint32_t block, int code, struct sl_err *err)
{
    const char *why = code == SL_ERR_CHECKSUM ? "is damaged: its digest does not match"
                      : code == SL_ERR_CRYPTO ? "came with a seal that does not fit"
                      : code == SL_ERR_READ   ? "could not be read from the target's disk"
                                              : sl_code_text(code);
    sl_err_set(err, code, "\"%s\": block %u %s", download->object.name, block, why);
    return code == SL_ERR_READ ? sl_err_hint(err, "the target's log says what is wrong with it")
                               : code;
}

/* With the lock held: until the target has answered for the first want. */
static int await_first(struct sl_download *download, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = download->object.session;
    uint64_t began = sl_client_stage_begin(session->client);
    int rc = ask_next(download, deadline, err);
    while (!rc && download->wants[download->wants_first].state == WANT_ASKED) {
        rc = sl_client_session_wait(session, &download->object.changed, deadline, err);
        if (!rc)
            rc = sl_client_object_error(&download->object, err);
    }
    sl_client_stage_end(session->client, SL_STAGE_SLOT, began);
    return rc;
}

/* With the lock held: waits until the first want is here, whole and checked. */
static int first_want(struct sl_download *download, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = download->object.session;
    for (;;) {
        int rc = await_first(download, deadline, err);
        if (rc)
            return rc;
        struct want *want = &download->wants[download->wants_first];
        if (want->state == WANT_FAILED)
            return block_error(download, want->block, want->code, err);
        pthread_mutex_unlock(&session->lock);
        rc = take_block(download, want, sl_block_length(download->info.length, want->block));
        pthread_mutex_lock(&session->lock);
        if (want->slot != SL_SLOT_NONE)
            sl_client_slot_release(session, want->slot);
        want->slot = SL_SLOT_NONE;
        if (!rc)
            return 0;
        if (want->again || (rc != SL_ERR_CHECKSUM && rc != SL_ERR_CRYPTO))
            return block_error(download, want->block, rc, err);
        sl_log(SL_LOG_WARN, "client", "\"%s\": block %u came damaged, asking once more",
               download->object.name, want->block);
        rc = ask_again(download, want, deadline, err);
        if (rc)
            return rc;
    }
}

int sl_download_next(struct sl_download *download, uint32_t *ret_block, const uint8_t **ret_bytes,
                     size_t *ret_count, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = download->object.session;
    if (download->next == download->end)
        return 0;
    deadline = sl_client_session_io_deadline(session, deadline);
    pthread_mutex_lock(&session->lock);
    int rc = check(download, err);
    if (!rc)
        rc = first_want(download, deadline, err);
    if (!rc) {
        download->wants_first = (download->wants_first + 1) % WINDOW_MAX;
        download->wants_count--;
        ask_ahead(download); /* the wire works while the caller does */
    }
    pthread_mutex_unlock(&session->lock);
    if (rc)
        return rc;
    *ret_block = download->next++;
    *ret_bytes = download->buffer;
    *ret_count = sl_block_length(download->info.length, *ret_block);
    return 1;
}

void sl_download_close(struct sl_download *download)
{
    if (!download)
        return;
    struct object *object = &download->object;
    struct session *session = object->session;
    pthread_mutex_lock(&session->lock);
    forget_wants(download);
    if (object->listed) {
        struct sl_msg msg = {.type = SL_MSG_CLOSE};
        msg.close.object = object->number;
        if (!object->err.code && !session->failure.code)
            sl_client_session_send(session, &msg);
        sl_client_object_unlist(object);
    }
    if (object->number)
        session->downloads--;
    pthread_mutex_unlock(&session->lock);
    sl_client_object_free(object);
}

/* --- whole objects --------------------------------------------------------------------------- */

static int fetch_once(struct sl_client *client, const char *name, size_t max, sl_deadline deadline,
                      char **ret_bytes, size_t *ret_count, struct sl_err *err)
{
    struct sl_download *download;
    struct sl_object_info info;
    int rc = sl_download_open(client, name, NULL, deadline, &download, &info, err);
    if (rc)
        return rc;
    char *whole = NULL;
    if (info.length > max)
        rc =
            sl_err_set(err, SL_ERR_LIMIT, "\"%s\" is longer than the %zu bytes allowed", name, max);
    else if (!(whole = sl_alloc((size_t)info.length + 1)))
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    while (rc == 0) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        rc = sl_download_next(download, &block, &bytes, &count, deadline, err);
        if (rc <= 0)
            break;
        memcpy(whole + (size_t)block * SL_BLOCK_BYTES, bytes, count);
        rc = 0;
    }
    sl_download_close(download);
    if (rc < 0) {
        sl_free(whole);
        return rc;
    }
    whole[info.length] = '\0';
    *ret_bytes = whole;
    *ret_count = (size_t)info.length;
    return 0;
}

int sl_client_fetch(struct sl_client *client, const char *name, size_t max, sl_deadline deadline,
                    char **ret_bytes, size_t *ret_count, struct sl_err *err)
{
    unsigned tries = 0;
    int rc;
    do
        rc = fetch_once(client, name, max, deadline, ret_bytes, ret_count, err);
    while (sl_client_again(rc, &tries, deadline));
    return rc;
}
