/* TLS: certificates and trust of a program, engines for its connections, and the words for what
 * can go wrong with them. Makes no certificates (cert.c) and moves no messages (control.c). */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/session/control_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a BIO over a socket that never raises SIGPIPE ------------------------------------------- */

/* OpenSSL's own socket BIO calls write(2) (crypto/bio/bss_sock.c), which raises SIGPIPE; Sluice
 * may not change a host program's signal handling. BIO_meth_new(3). */

static int bio_done(BIO *bio, ssize_t count)
{
    BIO_clear_retry_flags(bio);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    return (int)count;
}

static int bio_write(BIO *bio, const char *from, int count)
{
    int fd = (int)(intptr_t)BIO_get_data(bio);
    int fault = sl_fault("control.send");
    ssize_t done = fault > 0 ? -1 : send(fd, from, (size_t)count, MSG_NOSIGNAL);
    if (fault > 0)
        errno = fault;
    int result = bio_done(bio, done);
    if (result < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return result;
}

static int bio_read(BIO *bio, char *to, int room)
{
    int fd = (int)(intptr_t)BIO_get_data(bio);
    int fault = sl_fault("control.recv");
    ssize_t done = fault > 0 ? -1 : recv(fd, to, (size_t)room, 0);
    if (fault > 0)
        errno = fault;
    int result = bio_done(bio, done);
    if (result < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    if (done == 0)
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return result;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    switch (command) {
    case BIO_CTRL_FLUSH:
    case BIO_CTRL_DUP:
        return 1;
    case BIO_CTRL_EOF:
        return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default:
        return 0;
    }
}

static pthread_once_t method_once = PTHREAD_ONCE_INIT;
static BIO_METHOD *method; /* lives as long as the process, like OpenSSL's own */

static void make_method(void)
{
    BIO_METHOD *made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice socket");
    if (made && BIO_meth_set_write(made, bio_write) && BIO_meth_set_read(made, bio_read) &&
        BIO_meth_set_ctrl(made, bio_control))
        method = made;
    else
        BIO_meth_free(made);
}

static BIO *bio_on(int fd)
{
    pthread_once(&method_once, make_method);
    BIO *bio = method ? BIO_new(method) : NULL;
    if (!bio)
        return NULL;
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    return bio;
}

/* --- a certificate's names -------------------------------------------------------------------- */

/* The names a certificate is for, for a message: "a, b, 10.0.0.1". */
static void list_names(const X509 *certificate, char *text, size_t room)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && used < room; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        char one[128] = "";
        if (name->type == GEN_DNS) {
            int length = ASN1_STRING_length(name->d.dNSName);
            snprintf(one, sizeof one, "%.*s", length,
                     (const char *)ASN1_STRING_get0_data(name->d.dNSName));
        } else if (name->type == GEN_IPADD) {
            int length = ASN1_STRING_length(name->d.iPAddress);
            inet_ntop(length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress),
                      one, sizeof one);
        }
        for (char *c = one; *c; c++)
            if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f)
                *c = '?';
        int n = *one ? snprintf(text + used, room - used, "%s%s", used ? ", " : "", one) : 0;
        used += n > 0 ? (size_t)n : 0;
    }
    GENERAL_NAMES_free(names);
    if (!text[0])
        snprintf(text, room, "no name at all");
}

/* OpenSSL forgets a certificate that it refused (statem_clnt.c keeps the chain only after it was
 * verified), so the names for the message are noted here. Decides nothing. */
static int note_names(int ok, X509_STORE_CTX *context)
{
    int why = X509_STORE_CTX_get_error(context);
    if (ok || (why != X509_V_ERR_HOSTNAME_MISMATCH && why != X509_V_ERR_IP_ADDRESS_MISMATCH))
        return ok;
    SSL *ssl = X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct sl_control *control = ssl ? SSL_get_app_data(ssl) : NULL;
    const X509 *certificate = X509_STORE_CTX_get0_cert(context);
    if (control && certificate)
        list_names(certificate, control->refused_names, sizeof control->refused_names);
    return ok;
}

/* --- a program's certificates ---------------------------------------------------------------- */

const char *sl_tls_reason(void)
{
    unsigned long code = ERR_get_error();
    ERR_clear_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    return text ? text : "no reason given";
}

static int crypto_error(struct sl_err *err, const char *doing, const char *file)
{
    return sl_err_set(err, SL_ERR_CRYPTO, "%s \"%s\": %s", doing, file, sl_tls_reason());
}

/* A key with a passphrase must fail, not ask on somebody's terminal. */
static int no_passphrase(char *to, int room, int writing, void *arg)
{
    (void)to;
    (void)room;
    (void)writing;
    (void)arg;
    return -1;
}

static int check_key_mode(int fd, const char *file, struct sl_err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not stat \"%s\"", file);
    if (!S_ISREG(st.st_mode))
        return sl_err_set(err, SL_ERR_CONFIG, "private key \"%s\" is not a regular file", file);
    /* as PostgreSQL has it for server.key: a key of root may be read by a group */
    mode_t forbidden = st.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;
    if (!(st.st_mode & forbidden))
        return 0;
    sl_err_set(err, SL_ERR_CONFIG,
               "private key \"%s\" can be read or changed by others (mode %04o)", file,
               (unsigned)(st.st_mode & 07777));
    return sl_err_hint(err, "chmod 600 %s", file);
}

/* The file that was checked is the one that is read. */
static int load_key(SSL_CTX *context, const char *file, struct sl_err *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open private key \"%s\"", file);
    int rc = check_key_mode(fd, file, err);
    BIO *bio = rc ? NULL : BIO_new_fd(fd, BIO_NOCLOSE);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    if (!rc && !key)
        rc = crypto_error(err, "could not read private key", file);
    BIO_free(bio);
    close(fd);
    if (!rc && SSL_CTX_use_PrivateKey(context, key) != 1) {
        rc = sl_err_set(err, SL_ERR_CRYPTO, "private key \"%s\" does not belong to the certificate",
                        file);
        ERR_clear_error();
    }
    EVP_PKEY_free(key);
    return rc;
}

static int check_readable(const char *what, const char *file, struct sl_err *err)
{
    if (!file)
        return sl_err_set(err, SL_ERR_CONFIG, "no file is named for the %s", what);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open %s \"%s\"", what, file);
    close(fd);
    return 0;
}

static int load_files(SSL_CTX *context, const struct sl_tls_files *files, struct sl_err *err)
{
    int rc = check_readable("certificate", files->certificate, err);
    if (!rc)
        rc = check_readable("private key", files->key, err);
    if (!rc)
        rc = check_readable("authority's certificate", files->authority, err);
    if (rc)
        return rc;
    if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
        return crypto_error(err, "could not read certificate", files->certificate);
    rc = load_key(context, files->key, err);
    if (rc)
        return rc;
    if (SSL_CTX_load_verify_file(context, files->authority) != 1)
        return crypto_error(err, "could not read the authority's certificate", files->authority);
    return 0;
}

static int set_rules(SSL_CTX *context, bool server, struct sl_err *err)
{
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, note_names);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* no resumption: each session is authenticated anew, and the exporter's secret is its own */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context,
                        SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    X509_VERIFY_PARAM *verify = SSL_CTX_get0_param(context);
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1 ||
        X509_VERIFY_PARAM_set_purpose(verify, server ? X509_PURPOSE_SSL_CLIENT
                                                     : X509_PURPOSE_SSL_SERVER) != 1)
        return sl_err_set(err, SL_ERR_CRYPTO, "could not set up TLS 1.3: %s", sl_tls_reason());
    return 0;
}

static int find_end(SSL_CTX *context, time_t *ret_ends, struct sl_err *err)
{
    const X509 *own = SSL_CTX_get0_certificate(context);
    struct tm ends;
    if (!own || ASN1_TIME_to_tm(X509_get0_notAfter(own), &ends) != 1)
        return sl_err_set(err, SL_ERR_CRYPTO, "the certificate has no valid end");
    *ret_ends = timegm(&ends);
    return 0;
}

int sl_tls_new(const struct sl_tls_files *files, bool server, struct sl_tls **ret_tls,
               struct sl_err *err)
{
    struct sl_tls *tls = sl_calloc(1, sizeof *tls);
    if (!tls)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = 0;
    ERR_clear_error();
    tls->server = server;
    tls->context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!tls->context)
        rc = sl_err_set(err, SL_ERR_CRYPTO, "could not set up TLS: %s", sl_tls_reason());
    if (!rc)
        rc = set_rules(tls->context, server, err);
    if (!rc)
        rc = load_files(tls->context, files, err);
    if (!rc)
        rc = find_end(tls->context, &tls->ends, err);
    if (rc) {
        sl_tls_free(tls);
        return rc;
    }
    *ret_tls = tls;
    return 0;
}

void sl_tls_free(struct sl_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context); /* engines hold references of their own */
    sl_free(tls);
}

int sl_tls_days_left(const struct sl_tls *tls)
{
    double days = difftime(tls->ends, (time_t)(sl_wall_ns() / SL_NS_PER_S)) / 86400;
    if (days < 0)
        days -= 1; /* towards the past: ended an hour ago is -1, not 0 */
    return days > INT_MAX ? INT_MAX : days < INT_MIN ? INT_MIN : (int)days;
}

/* --- engines --------------------------------------------------------------------------------- */

static bool is_address(const char *name)
{
    uint8_t scrap[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, scrap) == 1 || inet_pton(AF_INET6, name, scrap) == 1;
}

static bool expect_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *verify = SSL_get0_param(ssl);
    if (is_address(name))
        return X509_VERIFY_PARAM_set1_ip_asc(verify, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                                X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return X509_VERIFY_PARAM_set1_host(verify, name, 0) == 1 &&
           SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    (void *)(uintptr_t)name) == 1; /* the macro's cast, without its warning */
}

int sl_tls_engine(const struct sl_tls *tls, int fd, const char *name, SSL **ret_ssl,
                  struct sl_err *err)
{
    ERR_clear_error();
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = ssl ? bio_on(fd) : NULL;
    if (!bio) {
        SSL_free(ssl);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "could not make a TLS engine: %s",
                          sl_tls_reason());
    }
    SSL_set_bio(ssl, bio, bio); /* takes it */
    if (tls->server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    if (name && !expect_name(ssl, name)) {
        SSL_free(ssl);
        return sl_err_set(err, SL_ERR_CONFIG, "\"%s\" cannot be a certificate's name: %s", name,
                          sl_tls_reason());
    }
    *ret_ssl = ssl;
    return 0;
}

/* --- names ----------------------------------------------------------------------------------- */

int sl_tls_peer_name(SSL *ssl, char *name, size_t room, struct sl_err *err)
{
    const X509 *certificate = SSL_get0_peer_certificate(ssl);
    if (!certificate)
        return sl_err_set(err, SL_ERR_CRYPTO, "the peer has no certificate");
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return sl_err_set(err, SL_ERR_CRYPTO, "the peer's certificate has no single common name");
    const ASN1_STRING *text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
    size_t length = (size_t)ASN1_STRING_length(text);
    const uint8_t *bytes = ASN1_STRING_get0_data(text);
    bool fits = length > 0 && length < room;
    /* it is compared with configured names and logged: nothing but visible ASCII */
    for (size_t i = 0; fits && i < length; i++)
        fits = bytes[i] > ' ' && bytes[i] < 0x7f;
    if (!fits)
        return sl_err_set(err, SL_ERR_CRYPTO,
                          "the peer's common name is not 1 to %zu visible ASCII characters",
                          room - 1);
    memcpy(name, bytes, length);
    name[length] = '\0';
    return 0;
}

/* --- what went wrong ------------------------------------------------------------------------- */

/* We refused the peer's certificate. */
static int explain_verify(const struct sl_control *control, long why, struct sl_err *err)
{
    const char *at = control->address;
    switch (why) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        sl_err_set(err, SL_ERR_CRYPTO, "the certificate of %s has expired", at);
        return sl_err_hint(err, "issue a new one there: sluice cert issue NAME");
    case X509_V_ERR_CERT_NOT_YET_VALID:
        sl_err_set(err, SL_ERR_CRYPTO, "the certificate of %s is not valid yet", at);
        return sl_err_hint(err, "compare the clocks of both hosts");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        sl_err_set(err, SL_ERR_CRYPTO,
                   "the certificate of %s was issued by an authority that is not ours", at);
        return sl_err_hint(err, "both sides need certificates of the same ca.crt (tls-ca)");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        sl_err_set(err, SL_ERR_CRYPTO, "the certificate of %s is for %s, not for \"%s\"", at,
                   control->refused_names, control->expected);
        return sl_err_hint(err, "connect by a name of the certificate, set tls-name, or issue "
                                "one that has this name");
    case X509_V_ERR_INVALID_PURPOSE:
        sl_err_set(err, SL_ERR_CRYPTO, "the certificate of %s is not for TLS %ss", at,
                   control->server ? "client" : "server");
        return sl_err_hint(err, "\"sluice cert issue\" makes certificates for both");
    default:
        return sl_err_set(err, SL_ERR_CRYPTO, "the certificate of %s was refused: %s", at,
                          X509_verify_cert_error_string(why));
    }
}

/* The peer refused ours, or speaks something else: by OpenSSL's reason. 0: none of these. */
static int explain_reason(const struct sl_control *control, int reason, struct sl_err *err)
{
    const char *at = control->address;
    switch (reason) {
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
        return sl_err_set(err, SL_ERR_CLOSED, "%s closed the connection%s", at,
                          control->state == SL_CONTROL_SHAKING ? " during the TLS handshake" : "");
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        sl_err_set(err, SL_ERR_CRYPTO, "%s refused our certificate: it has expired", at);
        return sl_err_hint(err, "issue a new one: sluice cert issue NAME");
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        sl_err_set(err, SL_ERR_CRYPTO,
                   "%s refused our certificate: it was issued by another authority", at);
        return sl_err_hint(err, "both sides need certificates of the same ca.crt (tls-ca)");
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        sl_err_set(err, SL_ERR_CRYPTO, "%s refused our certificate", at);
        return sl_err_hint(err, "its log says why");
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return sl_err_set(err, SL_ERR_CRYPTO, "%s",
                          reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE
                              ? "the client sent no certificate"
                              : "the target wants a certificate");
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
    case SSL_R_VERSION_TOO_LOW:
        return sl_err_set(err, SL_ERR_CRYPTO, "%s does not speak TLS 1.3", at);
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
        if (control->state != SL_CONTROL_SHAKING)
            return 0;
        sl_err_set(err, SL_ERR_CRYPTO, "%s does not speak TLS", at);
        return sl_err_hint(err, "is this the port of a sluiced?");
    default:
        return 0;
    }
}

int sl_tls_explain(const struct sl_control *control, int result, int sys, struct sl_err *err)
{
    const char *at = control->address;
    int why = SSL_get_error(control->ssl, result);
    unsigned long code = ERR_peek_error();
    int rc = 0;
    if (why == SSL_ERROR_ZERO_RETURN) {
        rc = sl_err_set(err, SL_ERR_CLOSED, "%s closed the connection", at);
    } else if (why == SSL_ERROR_SYSCALL) {
        rc = sys ? sl_err_sys(err, SL_ERR_CLOSED, sys, "lost the connection to %s", at)
                 : sl_err_set(err, SL_ERR_CLOSED, "%s closed the connection", at);
    } else {
        long verified = SSL_get_verify_result(control->ssl);
        if (control->state == SL_CONTROL_SHAKING && verified != X509_V_OK)
            rc = explain_verify(control, verified, err);
        if (!rc && ERR_GET_LIB(code) == ERR_LIB_SSL)
            rc = explain_reason(control, ERR_GET_REASON(code), err);
        if (!rc)
            rc = sl_err_set(err, SL_ERR_CRYPTO, "TLS with %s failed: %s", at, sl_tls_reason());
    }
    ERR_clear_error();
    return rc;
}
