/* What the files of hostile_peer share: connections and sessions that do as they are told. */
#ifndef TESTS_SUPPORT_HOSTILE_PEER_H
#define TESTS_SUPPORT_HOSTILE_PEER_H

#include "core/base/clock.h"
#include "core/session/control.h"
#include "core/wire/message.h"

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#define SLOTS     8u
#define ANSWER_MS 40000 /* to be refused; dead_ms is 8 s, and the machine may be busy */

struct hostile_options {
    const char *host, *pki, *client, *stanza;
    uint16_t port;
    unsigned long count;
    uint64_t seed;
};
extern struct hostile_options opt;
extern SSL_CTX *context;
extern unsigned cases, passed_by;

struct session {
    int fd;
    SSL *ssl;
    struct sl_msg_welcome welcome;
    uint8_t frame[SL_FRAME_MAX + 8];
    size_t have;
    struct sl_msg msg; /* the last that came; points into `frame` */
    size_t used;       /* its length there */
};

void broken(const char *what) __attribute__((noreturn)); /* the test itself is */
uint64_t any(void);
void fill(uint8_t *bytes, size_t count);
void verdict(const char *what, bool refused);

int dial(void);                    /* -1 when the target does not let us */
bool is_ended(int fd, int ms);     /* by the target, within the time */
struct session *shake_hands(void); /* TLS only; NULL when it was refused */
struct session *session_new(void); /* up to WELCOME */
void hang_up(struct session *s);   /* NULL ok */
struct sl_msg hello(void);         /* a right one */
struct sl_offer right_offer(void); /* of object 1, slot 0, 1000 bytes */
bool send_raw(struct session *s, const void *bytes, size_t count);
bool send_msg(struct session *s, const struct sl_msg *msg);
/* The next message but heartbeats: 1; 0: the connection has ended; -1: nothing came in time. */
int next_msg(struct session *s, int ms);
void memory(struct session *s);
void create(struct session *s, uint32_t object, const char *name);
void offer(struct session *s, const struct sl_offer *o);
bool is_refused(struct session *s);
bool is_object_refused(struct session *s);

void mode_messages(void);
void mode_lanes(void);

#endif
