/* Log lines on their way to the archiver's thread: see the header. A process has one log, hence the
 * static state. */
#include "postgres/archive_module/notes.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_pg_note notes[SL_PG_NOTES_MAX];
static unsigned first, count;

void sl_pg_notes_plain(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

void sl_pg_notes_sink(void *arg, enum sl_log_level level, const char *component, const char *text,
                      const char *hint)
{
    (void)arg, (void)component;
    pthread_mutex_lock(&lock);
    if (count == SL_PG_NOTES_MAX) {
        first = (first + 1) % SL_PG_NOTES_MAX;
        count--;
    }
    struct sl_pg_note *note = &notes[(first + count++) % SL_PG_NOTES_MAX];
    note->level = level;
    snprintf(note->text, sizeof note->text, "%s", text);
    snprintf(note->hint, sizeof note->hint, "%s", hint);
    sl_pg_notes_plain(note->text);
    sl_pg_notes_plain(note->hint);
    pthread_mutex_unlock(&lock);
}

bool sl_pg_notes_take(struct sl_pg_note *ret_note)
{
    pthread_mutex_lock(&lock);
    bool any = count > 0;
    if (any) {
        *ret_note = notes[first];
        first = (first + 1) % SL_PG_NOTES_MAX;
        count--;
    }
    pthread_mutex_unlock(&lock);
    return any;
}
