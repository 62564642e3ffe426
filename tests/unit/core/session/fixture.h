/* For tests of controls and of the client: certificates in a temporary folder, listening sockets,
 * and two ends brought together. */
#ifndef SL_TEST_SESSION_FIXTURE_H
#define SL_TEST_SESSION_FIXTURE_H

#include "core/session/cert.h"
#include "core/session/control.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct certs {
    char dir[64];
};

static inline void certs_make(struct certs *certs)
{
    struct sl_err err;
    snprintf(certs->dir, sizeof certs->dir, "/tmp/sluice-test-XXXXXX");
    MUST(mkdtemp(certs->dir));
    MUST(sl_cert_init(certs->dir, &err) == 0);
}

static inline void certs_remove(struct certs *certs)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", certs->dir);
    MUST(system(command) == 0);
}

static inline void certs_issue(struct certs *certs, const char *name, const char *alt)
{
    struct sl_err err;
    const char *alts[] = {alt, NULL};
    MUST(sl_cert_issue(certs->dir, name, alts, 0, &err) == 0);
}

/* The end of `name`'s certificate moved to `seconds` from now, signed again. */
static inline void certs_set_end(struct certs *certs, const char *name, long seconds)
{
    char path[160];
    snprintf(path, sizeof path, "%s/ca.key", certs->dir);
    FILE *file = fopen(path, "r");
    MUST(file);
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
    snprintf(path, sizeof path, "%s/%s.crt", certs->dir, name);
    file = fopen(path, "r");
    MUST(file && key);
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    MUST(certificate);
    MUST(X509_gmtime_adj(X509_getm_notBefore(certificate), seconds - 86400));
    MUST(X509_gmtime_adj(X509_getm_notAfter(certificate), seconds));
    MUST(X509_sign(certificate, key, EVP_sha256()));
    file = fopen(path, "w");
    MUST(file && PEM_write_X509(file, certificate));
    fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static inline int certs_tls(const struct certs *certs, const char *name, bool server,
                            struct sl_tls **ret_tls, struct sl_err *err)
{
    char crt[160], key[160], ca[160];
    snprintf(crt, sizeof crt, "%s/%s.crt", certs->dir, name);
    snprintf(key, sizeof key, "%s/%s.key", certs->dir, name);
    snprintf(ca, sizeof ca, "%s/ca.crt", certs->dir);
    struct sl_tls_files files = {crt, key, ca};
    return sl_tls_new(&files, server, ret_tls, err);
}

static inline struct sl_tls *certs_tls_must(const struct certs *certs, const char *name,
                                            bool server)
{
    struct sl_tls *tls = NULL;
    struct sl_err err;
    if (certs_tls(certs, name, server, &tls, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return tls;
}

/* A listening socket on 127.0.0.1; `port` has room for 8. */
static inline int listen_local(char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0 && bind(fd, (struct sockaddr *)&to, sizeof to) == 0 && listen(fd, 8) == 0);
    MUST(getsockname(fd, (struct sockaddr *)&to, &length) == 0);
    snprintf(port, 8, "%u", ntohs(to.sin_port));
    return fd;
}

static inline int accept_local(int listener)
{
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    MUST(poll(&wait, 1, 10000) == 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    MUST(fd >= 0);
    return fd;
}

static inline int dial_local(const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

#endif
