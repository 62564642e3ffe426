/* Pages of a listing. A store lists a whole folder or nothing: doing so again for each page would
 * take time with the square of its names. So the entries behind a page are kept for the pages that
 * follow, up to a bound, encoded as LISTED wants them, and only for a moment: it is no cache of
 * what the repository holds. */
#include "core/target/listing.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/repo/repo.h"
#include "core/wire/message.h"

#include <stdio.h>
#include <string.h>

#define PAGE_BYTES 60000u             /* of entries in one LISTED; a frame is at most 64 KiB */
#define KEPT_BYTES (16u * PAGE_BYTES) /* about 16,000 names */
#define KEPT_NS    (10 * SL_NS_PER_S)

struct listing {
    uint64_t made_ns;
    uint8_t *entries;
    size_t bytes, room, at; /* those before `at` were sent */
    uint32_t count, limit;
    bool more;   /* in the folder, behind these */
    bool failed; /* no memory */
    char folder[SL_FULL_NAME_MAX];
    char last[SL_NAME_MAX]; /* name sent last, or `after` */
};

void sl_target_listing_free(struct listing *listing)
{
    if (!listing)
        return;
    sl_free(listing->entries);
    sl_free(listing);
}

static bool make_room(struct listing *listing)
{
    size_t room = listing->room ? listing->room * 2 : PAGE_BYTES / 4;
    uint8_t *entries = sl_realloc(listing->entries, room);
    if (!entries)
        return false;
    listing->entries = entries;
    listing->room = room;
    return true;
}

static int add(void *arg, const char *name, bool is_folder, uint64_t length)
{
    struct listing *listing = arg;
    struct sl_entry entry = {.is_folder = is_folder, .length = is_folder ? 0 : length};
    if (strcmp(name, listing->last) <= 0 || strlen(name) >= sizeof entry.name)
        return 0;
    if (listing->count == listing->limit || listing->bytes >= KEPT_BYTES) {
        listing->more = true;
        return 1; /* ends the listing */
    }
    snprintf(entry.name, sizeof entry.name, "%s", name);
    for (;;) {
        struct sl_writer w =
            sl_writer_on(listing->entries + listing->bytes, listing->room - listing->bytes);
        sl_entry_write(&w, &entry);
        if (!w.failed) {
            listing->bytes += sl_writer_used(&w);
            listing->count++;
            return 0;
        }
        if (!make_room(listing)) {
            listing->failed = true;
            return 1;
        }
    }
}

static int make(struct listing **ret_listing, struct sl_store *store, const char *folder,
                const char *after, uint32_t limit, struct sl_err *err)
{
    struct listing *listing = sl_calloc(1, sizeof *listing);
    if (!listing || !make_room(listing)) {
        sl_target_listing_free(listing);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    listing->limit = limit;
    snprintf(listing->folder, sizeof listing->folder, "%s", folder);
    snprintf(listing->last, sizeof listing->last, "%s", after);
    int rc = store->ops->list(store, folder, add, listing, err);
    if (listing->failed)
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc < 0) {
        sl_target_listing_free(listing);
        return rc;
    }
    listing->made_ns = sl_now_ns();
    *ret_listing = listing;
    return 0;
}

static bool goes_on(const struct listing *listing, const char *folder, const char *after)
{
    return listing && listing->at < listing->bytes && strcmp(listing->folder, folder) == 0 &&
           strcmp(listing->last, after) == 0 && sl_now_ns() - listing->made_ns < KEPT_NS;
}

static void take(struct listing *listing, uint32_t limit, struct page *page)
{
    struct sl_reader r = sl_reader_on(listing->entries + listing->at, listing->bytes - listing->at);
    size_t all = sl_reader_left(&r), taken = 0;
    for (uint32_t i = 0; i < limit && sl_reader_left(&r); i++) {
        struct sl_entry entry;
        sl_entry_read(&r, &entry);
        if (all - sl_reader_left(&r) > PAGE_BYTES)
            break;
        taken = all - sl_reader_left(&r);
        snprintf(listing->last, sizeof listing->last, "%s", entry.name);
    }
    *page = (struct page){listing->entries + listing->at, taken, listing->more || taken < all};
    listing->at += taken;
}

int sl_target_listing_page(struct listing **listing, struct sl_store *store, const char *folder,
                           const char *after, uint32_t limit, struct page *ret_page,
                           struct sl_err *err)
{
    if (!goes_on(*listing, folder, after)) {
        sl_target_listing_free(*listing);
        *listing = NULL;
        int rc = make(listing, store, folder, after, limit, err);
        if (rc)
            return rc;
    }
    take(*listing, limit, ret_page);
    return 0;
}
