/* A block on its way out, on its worker: read, compare the stored digest, seal in place, push and
 * notice from the same buffer. */
#include "core/target/target_internal.h"

#include "core/base/fault.h"

void sl_target_push_begin(struct worker *worker, struct piece *piece)
{
    if (!piece->lane->lane) /* spare the read */
        sl_target_worker_lost(worker, piece);
    else
        sl_target_worker_store(worker, piece);
}

/* Under a number of its own: two seals of one session never share one, whichever worker makes
 * them and however often a block is sent. */
static int seal(struct piece *piece)
{
    struct session *session = piece->session;
    piece->block.seal_number =
        atomic_fetch_add_explicit(&session->seal_next, 1, memory_order_relaxed);
    return sl_seal(piece->lane->sealer, &piece->block, piece->buffer->start, piece->buffer->start,
                   NULL);
}

void sl_target_push_read(struct worker *worker, struct piece *piece, int code, int sys)
{
    int fault = sl_fault("target.read");
    if (!code && fault > 0) {
        code = SL_ERR_READ;
        sys = fault;
    }
    if (!code) /* the object stays opened as long as a piece of it is under way */
        code = sl_object_block_check(piece->object->opened, piece->block.block,
                                     piece->buffer->start, NULL);
    if (!code && !piece->lane->lane) {
        sl_target_worker_lost(worker, piece);
        return;
    }
    if (!code && piece->lane->sealed)
        code = seal(piece);
    if (code)
        sl_target_worker_over(worker, piece, code, sys);
    else
        sl_target_worker_move(worker, piece);
}
