/* The way of events from the connection's thread into the repository: a queue of a few blocks, and
 * a thread that takes what there is. While one block is under way the next one fills, so many small
 * transactions share one append and its sync. */
#ifndef SL_MYSQL_BINLOG_SEND_H
#define SL_MYSQL_BINLOG_SEND_H

#include "core/client/client.h"
#include "mysql/binlog_event.h"

struct sl_my_sender;

struct sl_my_sender_config {
    struct sl_client *client; /* borrows */
    const char *folder;       /* below the stanza: "binlog/ID/0001"; copied */
    unsigned timeout_ms;
    /* the file that is being continued, or NULL; taken, also when it fails */
    struct sl_grow *grow;
    const char *file;
};

int sl_my_sender_new(const struct sl_my_sender_config *config, struct sl_my_sender **ret_sender,
                     struct sl_err *err);
/* A file begins: its "about" is stored first; SL_ERR_EXISTS from later calls: under this name is
 * another one. A live one grows durably; otherwise it appears whole or not at all. */
int sl_my_sender_begin(struct sl_my_sender *sender, const char *file, bool live, const char *about,
                       struct sl_err *err);
/* Bytes of it, a whole event (or the magic with the first one). Copied. Waits when the queue is
 * full. */
int sl_my_sender_put(struct sl_my_sender *sender, const void *bytes, size_t count,
                     struct sl_err *err);
int sl_my_sender_seal(struct sl_my_sender *sender, struct sl_err *err); /* it has ended */
/* Waits until all that was put is durable (of a live file), or done. */
int sl_my_sender_wait(struct sl_my_sender *sender, sl_deadline deadline, struct sl_err *err);
/* 0, or why it has failed. Does not block. */
int sl_my_sender_check(struct sl_my_sender *sender, struct sl_err *err);
uint64_t sl_my_sender_sealed(struct sl_my_sender *sender); /* how many files */
/* What is queued is dropped; a live file stays as far as it is durable. NULL ok. */
void sl_my_sender_free(struct sl_my_sender *sender);

#endif
