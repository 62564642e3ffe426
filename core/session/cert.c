/* Making certificates: a small authority of one's own. Not a general tool: no requests, no
 * revocation (take the stanza's permission away instead), no intermediate authorities. */
#include "core/session/cert.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/session/control_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_SECONDS   86400L
#define START_SECONDS (-3600L) /* valid from an hour ago: clocks differ */
#define NAME_CHARS    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static int crypto_failed(struct sl_err *err, const char *doing)
{
    return sl_err_set(err, SL_ERR_CRYPTO, "could not %s: %s", doing, sl_tls_reason());
}

/* --- files ----------------------------------------------------------------------------------- */

static int sync_folder(const char *dir, struct sl_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open folder \"%s\"", dir);
    int fault = sl_fault("cert.fsync");
    int sys = fault > 0 ? fault : fsync(fd) ? errno : 0;
    close(fd);
    return sys ? sl_err_sys(err, SL_ERR_SYNC, sys, "could not sync folder \"%s\"", dir) : 0;
}

static int write_all(int fd, const char *bytes, size_t count)
{
    while (count) {
        int fault = sl_fault("cert.write");
        ssize_t done = fault > 0 ? -1 : write(fd, bytes, count);
        if (fault > 0)
            errno = fault;
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        bytes += done;
        count -= (size_t)done;
    }
    return 0;
}

/* Writes a BIO's memory to a new file and syncs it; nothing stays behind when it fails. */
static int save(const char *path, mode_t mode, BIO *pem, struct sl_err *err)
{
    char *bytes;
    long count = BIO_get_mem_data(pem, &bytes);
    int fault = sl_fault("cert.open");
    int fd =
        fault > 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        int sys = fault > 0 ? fault : errno;
        if (sys == EEXIST) {
            sl_err_set(err, SL_ERR_EXISTS, "\"%s\" exists already", path);
            return sl_err_hint(err, "nothing is overwritten: move the old files away first");
        }
        return sl_err_sys(err, SL_ERR_OPEN, sys, "could not create \"%s\"", path);
    }
    int rc = 0, sys = write_all(fd, bytes, (size_t)count);
    if (sys)
        rc = sl_err_sys(err, SL_ERR_WRITE, sys, "could not write \"%s\"", path);
    fault = rc ? 0 : sl_fault("cert.fsync");
    if (!rc && (fault > 0 || fsync(fd)))
        rc = sl_err_sys(err, SL_ERR_SYNC, fault > 0 ? fault : errno, "could not sync \"%s\"", path);
    close(fd);
    if (rc)
        unlink(path);
    return rc;
}

/* Key and certificate as DIR/NAME.key and DIR/NAME.crt: both or none. */
static int save_both(const char *dir, const char *name, EVP_PKEY *key, X509 *certificate,
                     struct sl_err *err)
{
    char *key_path = sl_asprintf("%s/%s.key", dir, name);
    char *crt_path = sl_asprintf("%s/%s.crt", dir, name);
    /* secure memory is cleansed when freed */
    BIO *key_pem = BIO_new(BIO_s_secmem()), *crt_pem = BIO_new(BIO_s_mem());
    int rc = 0;
    if (!key_path || !crt_path || !key_pem || !crt_pem)
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    else if (!PEM_write_bio_PKCS8PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL) ||
             !PEM_write_bio_X509(crt_pem, certificate))
        rc = crypto_failed(err, "encode a certificate");
    if (!rc)
        rc = save(key_path, 0600, key_pem, err);
    if (!rc) {
        rc = save(crt_path, 0644, crt_pem, err);
        if (!rc) {
            rc = sync_folder(dir, err);
            if (rc)
                unlink(crt_path);
        }
        if (rc)
            unlink(key_path);
    }
    BIO_free(key_pem);
    BIO_free(crt_pem);
    sl_free(key_path);
    sl_free(crt_path);
    return rc;
}

static FILE *open_in(const char *dir, const char *file, struct sl_err *err)
{
    char *path = sl_asprintf("%s/%s", dir, file);
    if (!path) {
        sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    FILE *opened = fopen(path, "re");
    if (!opened) {
        int sys = errno;
        sl_err_sys(err, SL_ERR_OPEN, sys, "could not open \"%s\"", path);
        if (sys == ENOENT)
            sl_err_hint(err, "make an authority first: sluice cert init %s", dir);
    }
    sl_free(path);
    return opened;
}

/* --- certificates ---------------------------------------------------------------------------- */

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    if (!extension)
        return false;
    bool ok = X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return ok;
}

static bool set_random_serial(X509 *certificate)
{
    uint8_t bytes[16];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive and of full length, RFC 5280 §4.1.2.2 */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return ok;
}

static bool set_common_name(X509_NAME *subject, const char *name)
{
    const unsigned char *bytes = (const unsigned char *)name;
    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, bytes, -1, -1, 0) == 1;
}

/* A certificate with everything but extensions, issuer and signature. */
static X509 *draft(EVP_PKEY *key, const char *common_name, unsigned days)
{
    X509 *certificate = X509_new();
    if (certificate && X509_set_version(certificate, X509_VERSION_3) == 1 &&
        set_random_serial(certificate) &&
        X509_time_adj_ex(X509_getm_notBefore(certificate), 0, START_SECONDS, NULL) &&
        X509_time_adj_ex(X509_getm_notAfter(certificate), (int)days, 0, NULL) &&
        X509_set_pubkey(certificate, key) == 1 &&
        set_common_name(X509_get_subject_name(certificate), common_name))
        return certificate;
    X509_free(certificate);
    return NULL;
}

static X509 *make_authority(EVP_PKEY *key)
{
    char name[64];
    uint8_t mark[4];
    /* a name of its own, so that two authorities are never taken for one */
    if (RAND_bytes(mark, sizeof mark) != 1)
        return NULL;
    snprintf(name, sizeof name, "Sluice CA %02x%02x%02x%02x", mark[0], mark[1], mark[2], mark[3]);
    X509 *ca = draft(key, name, SL_CERT_CA_DAYS);
    if (ca && X509_set_issuer_name(ca, X509_get_subject_name(ca)) == 1 &&
        add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        add_extension(ca, ca, NID_subject_key_identifier, "hash") &&
        add_extension(ca, ca, NID_authority_key_identifier, "keyid:always") &&
        X509_sign(ca, key, EVP_sha256()))
        return ca;
    X509_free(ca);
    return NULL;
}

/* "DNS:a,IP:10.0.0.1" of a name and the others; NULL when out of memory. */
static char *alt_name_text(const char *name, const char *const *alt_names)
{
    static const char *const none[] = {NULL};
    char *text = NULL;
    for (const char *const *next = alt_names ? alt_names : none; name; name = *next++) {
        uint8_t scrap[sizeof(struct in6_addr)];
        bool is_ip = inet_pton(AF_INET, name, scrap) == 1 || inet_pton(AF_INET6, name, scrap) == 1;
        char *longer =
            sl_asprintf("%s%s%s:%s", text ? text : "", text ? "," : "", is_ip ? "IP" : "DNS", name);
        sl_free(text);
        text = longer;
        if (!text)
            return NULL;
    }
    return text;
}

static X509 *make_host(EVP_PKEY *key, const char *name, const char *alt_names, unsigned days,
                       X509 *ca, EVP_PKEY *ca_key)
{
    X509 *host = draft(key, name, days);
    /* a certificate that outlives its authority would only seem to be good */
    if (host && ASN1_TIME_compare(X509_get0_notAfter(host), X509_get0_notAfter(ca)) > 0 &&
        X509_set1_notAfter(host, X509_get0_notAfter(ca)) != 1) {
        X509_free(host);
        return NULL;
    }
    if (host && X509_set_issuer_name(host, X509_get_subject_name(ca)) == 1 &&
        add_extension(host, ca, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(host, ca, NID_key_usage, "critical,digitalSignature") &&
        add_extension(host, ca, NID_ext_key_usage, "serverAuth,clientAuth") &&
        add_extension(host, ca, NID_subject_key_identifier, "hash") &&
        add_extension(host, ca, NID_authority_key_identifier, "keyid:always") &&
        add_extension(host, ca, NID_subject_alt_name, alt_names) &&
        X509_sign(host, ca_key, EVP_sha256()))
        return host;
    X509_free(host);
    return NULL;
}

/* --- the two commands ------------------------------------------------------------------------ */

int sl_cert_init(const char *dir, struct sl_err *err)
{
    if (mkdir(dir, 0700) && errno != EEXIST)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not make folder \"%s\"", dir);
    ERR_clear_error();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *ca = key ? make_authority(key) : NULL;
    int rc = ca ? save_both(dir, "ca", key, ca, err) : crypto_failed(err, "make an authority");
    X509_free(ca);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return rc;
}

static int check_name(const char *name, struct sl_err *err)
{
    size_t length = strlen(name);
    bool ok = length >= 1 && length <= 63 && name[0] != '.' && name[0] != '-' &&
              strspn(name, NAME_CHARS "._:-") == length && strcmp(name, "ca") != 0;
    if (ok)
        return 0;
    sl_err_set(err, SL_ERR_USAGE, "\"%s\" cannot be a certificate's name", name);
    return sl_err_hint(err, "1 to 63 letters, digits or . _ : -, and not \"ca\"");
}

static int check_alt_names(const char *const *alt_names, struct sl_err *err)
{
    for (; alt_names && *alt_names; alt_names++) {
        size_t length = strlen(*alt_names);
        /* the text goes into OpenSSL's extension syntax, where a comma begins another name */
        if (length == 0 || length > 253 || strspn(*alt_names, NAME_CHARS "._:*-") != length)
            return sl_err_set(err, SL_ERR_USAGE, "\"%s\" is neither a host name nor an address",
                              *alt_names);
    }
    return 0;
}

static int load_authority(const char *dir, X509 **ret_ca, EVP_PKEY **ret_key, struct sl_err *err)
{
    FILE *crt = open_in(dir, "ca.crt", err);
    if (!crt)
        return err ? err->code : SL_ERR_OPEN;
    FILE *pem = open_in(dir, "ca.key", err);
    if (!pem) {
        fclose(crt);
        return err ? err->code : SL_ERR_OPEN;
    }
    X509 *ca = PEM_read_X509(crt, NULL, NULL, NULL);
    char no_passphrase[] = ""; /* never asks on a terminal */
    EVP_PKEY *key = PEM_read_PrivateKey(pem, NULL, NULL, no_passphrase);
    fclose(crt);
    fclose(pem);
    int rc = 0;
    if (!ca || !key)
        rc = crypto_failed(err, "read the authority");
    else if (X509_check_private_key(ca, key) != 1)
        rc = sl_err_set(err, SL_ERR_CRYPTO, "\"%s/ca.key\" does not belong to ca.crt", dir);
    if (rc) {
        X509_free(ca);
        EVP_PKEY_free(key);
        return rc;
    }
    *ret_ca = ca;
    *ret_key = key;
    return 0;
}

int sl_cert_issue(const char *dir, const char *name, const char *const *alt_names, unsigned days,
                  struct sl_err *err)
{
    struct sl_err scrap;
    if (!err)
        err = &scrap; /* load_authority() reads the code from it */
    int rc = check_name(name, err);
    if (!rc)
        rc = check_alt_names(alt_names, err);
    if (!rc && days > SL_CERT_CA_DAYS)
        days = SL_CERT_CA_DAYS;
    X509 *ca = NULL;
    EVP_PKEY *ca_key = NULL;
    ERR_clear_error();
    if (!rc)
        rc = load_authority(dir, &ca, &ca_key, err);
    if (rc)
        return rc;
    char *names = alt_name_text(name, alt_names);
    EVP_PKEY *key = names ? EVP_EC_gen("P-256") : NULL;
    X509 *host = key ? make_host(key, name, names, days ? days : SL_CERT_DAYS, ca, ca_key) : NULL;
    if (!names)
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    else
        rc = host ? save_both(dir, name, key, host, err) : crypto_failed(err, "make a certificate");
    X509_free(host);
    EVP_PKEY_free(key);
    sl_free(names);
    X509_free(ca);
    EVP_PKEY_free(ca_key);
    ERR_clear_error();
    return rc;
}
