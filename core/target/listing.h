/* What a session was listed last, kept between the pages of one LIST. */
#ifndef SL_TARGET_LISTING_H
#define SL_TARGET_LISTING_H

#include "core/store/store.h"

struct listing;

struct page {
    const uint8_t *entries; /* the listing's, until the next page is made of it */
    size_t bytes;
    bool more;
};

/* The entries of `folder` behind `after`, at most `limit` and as many as one LISTED takes. Goes on
 * in `*listing` (may be NULL) if that is where it stopped, else lists the folder anew; leaves there
 * what is kept for the next page, in any case what `ret_page` points to. Blocks on the disk. */
int sl_target_listing_page(struct listing **listing, struct sl_store *store, const char *folder,
                           const char *after, uint32_t limit, struct page *ret_page,
                           struct sl_err *err);
void sl_target_listing_free(struct listing *listing); /* NULL ok */

#endif
