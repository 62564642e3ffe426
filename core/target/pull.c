/* A block on its way in, on its worker: pull, unseal in place, compare digests, write from the
 * same buffer. */
#include "core/target/target_internal.h"

#include "core/base/fault.h"

#include <string.h>

/* A fault point of the path: an errno, 0 (also for "skip": there is no call to leave out). */
static int fault_at(const char *point)
{
    int fault = sl_fault(point);
    return fault > 0 ? fault : 0;
}

void sl_target_pull_begin(struct worker *worker, struct piece *piece)
{
    sl_target_worker_move(worker, piece);
}

/* Is the buffer what the offer says? Of plain blocks both digests are the same, control has seen to
 * that. That a packed block unpacks to its plain digest is its client's word: unpacking each would
 * cost the target more than all else it does. `verify` unpacks, and so does every reader; a client
 * that lies spoils its own stanza, as it could with plain bytes. */
static int check(struct worker *worker, struct piece *piece)
{
    const struct sl_offer *block = &piece->block;
    if (piece->lane->sealed) {
        int rc = sl_unseal(piece->lane->unsealer, block, piece->buffer->start, piece->buffer->start,
                           NULL);
        if (rc)
            return rc;
    }
    struct sl_id digest = sl_digest(worker->target->config.repo->digest_seed, piece->buffer->start,
                                    block->stored_bytes);
    return sl_id_equal(&digest, &block->stored_digest) ? 0 : SL_ERR_CHECKSUM;
}

void sl_target_pull_arrived(struct worker *worker, struct piece *piece)
{
    int sys = fault_at("target.pulled");
    int rc = sys ? SL_ERR_WRITE : check(worker, piece);
    if (!rc && (sys = fault_at("target.checked")))
        rc = SL_ERR_WRITE;
    if (rc) {
        sl_target_worker_over(worker, piece, rc, sys);
        return;
    }
    size_t bytes = piece->block.stored_bytes, padded = (size_t)sl_align_up(bytes);
    memset(piece->buffer->start + bytes, 0, padded - bytes);
    piece->taken = true;
    sl_target_mail_chain_add(&worker->out, &piece->taken_mail);
    if (piece->keep)
        sl_target_worker_over(worker, piece, 0, 0);
    else
        sl_target_worker_store(worker, piece);
}

void sl_target_pull_written(struct worker *worker, struct piece *piece, int code, int sys)
{
    if (!code && (sys = fault_at("target.written")))
        code = SL_ERR_WRITE;
    sl_target_worker_over(worker, piece, code, sys);
}
