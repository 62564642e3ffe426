/* Pieces: the steps that are allowed, and the lists that hold them. */
#include "core/target/piece.h"

#include <stdlib.h>

#define BIT(state) (1u << (state))

/* From each state, the states that may follow. In goes GIVEN, MOVE, STORE, OVER; out GIVEN, STORE,
 * MOVE, OVER; a piece whose lane died goes from OVER to QUEUED again. */
static const unsigned allowed[] = {
    [PIECE_QUEUED] = BIT(PIECE_GIVEN) | BIT(PIECE_OVER),
    [PIECE_GIVEN] = BIT(PIECE_MOVE_WAIT) | BIT(PIECE_STORE_WAIT) | BIT(PIECE_OVER),
    [PIECE_MOVE_WAIT] = BIT(PIECE_MOVING) | BIT(PIECE_OVER),
    [PIECE_MOVING] = BIT(PIECE_STORE_WAIT) | BIT(PIECE_OVER),
    [PIECE_STORE_WAIT] = BIT(PIECE_STORING) | BIT(PIECE_OVER),
    [PIECE_STORING] = BIT(PIECE_MOVE_WAIT) | BIT(PIECE_OVER),
    [PIECE_OVER] = BIT(PIECE_QUEUED),
};

void sl_target_piece_to(struct piece *piece, enum piece_state state)
{
    if (!(allowed[piece->state] & BIT(state)))
        abort(); /* our fault: better to end than to store what nobody understands */
    piece->state = state;
}

void sl_target_piece_list_add(struct piece_list *list, struct piece *piece)
{
    piece->next = NULL;
    piece->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = piece;
    list->last = piece;
    list->count++;
}

void sl_target_piece_list_add_first(struct piece_list *list, struct piece *piece)
{
    piece->prev = NULL;
    piece->next = list->first;
    *(list->first ? &list->first->prev : &list->last) = piece;
    list->first = piece;
    list->count++;
}

void sl_target_piece_list_remove(struct piece_list *list, struct piece *piece)
{
    *(piece->prev ? &piece->prev->next : &list->first) = piece->next;
    *(piece->next ? &piece->next->prev : &list->last) = piece->prev;
    piece->next = piece->prev = NULL;
    list->count--;
}

struct piece *sl_target_piece_list_pop(struct piece_list *list)
{
    struct piece *piece = list->first;
    if (piece)
        sl_target_piece_list_remove(list, piece);
    return piece;
}
