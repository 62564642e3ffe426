/* The rules of retention.h. No repository here, and no clock. */
#include "core/cli/retention.h"

#include <stdlib.h>
#include <string.h>

static bool is_full(const char *label)
{
    return !strchr(label, '_');
}

static int by_stamp(const void *a, const void *b)
{
    const struct sl_candidate *x = a, *y = b;
    return strcmp(sl_label_stamp(x->label), sl_label_stamp(y->label));
}

/* Index of the oldest full backup that stays; `count` when nothing was asked for by this rule. */
static size_t first_by_number(const struct sl_candidate *b, size_t count, unsigned fulls)
{
    size_t first = count;
    for (size_t i = count; i-- && fulls;)
        if (is_full(b[i].label)) {
            first = i;
            fulls--;
        }
    return fulls ? 0 : first;
}

static size_t first_by_time(const struct sl_candidate *b, size_t count, double until)
{
    for (size_t i = count; i--;)
        if (is_full(b[i].label) && b[i].stop_epoch <= until)
            return i;
    return 0;
}

/* What a kept backup may refer to: its set, up to it. */
static void spare_set(struct sl_candidate *b, size_t last)
{
    for (size_t i = 0; i <= last; i++)
        if (sl_label_same_set(b[i].label, b[last].label))
            b[i].expired = false;
}

void sl_retention(struct sl_candidate *b, size_t count, unsigned fulls, unsigned days, double now)
{
    size_t first = count;
    qsort(b, count, sizeof *b, by_stamp);
    if (!fulls && !days)
        first = 0;
    if (fulls)
        first = first_by_number(b, count, fulls);
    if (days) {
        size_t other = first_by_time(b, count, now - days * 86400.0);
        first = other < first ? other : first;
    }
    for (size_t i = 0; i < count; i++)
        b[i].expired = false;
    for (size_t i = 0; i < first; i++)
        if (is_full(b[i].label))
            for (size_t k = i; k < count; k++)
                b[k].expired |= sl_label_same_set(b[k].label, b[i].label);
    for (size_t i = 0; i < count; i++)
        if (b[i].keep != SL_KEEP_NOT)
            spare_set(b, i);
}
