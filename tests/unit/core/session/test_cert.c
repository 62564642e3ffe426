/* Certificates: what is made, what it says, what is refused. */
#include "core/base/fault.h"
#include "tests/unit/core/session/fixture.h"

#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int setup(void **state)
{
    struct certs *certs = calloc(1, sizeof *certs);
    certs_make(certs);
    *state = certs;
    return 0;
}

static int teardown(void **state)
{
    sl_fault_set(NULL);
    certs_remove(*state);
    free(*state);
    return 0;
}

static X509 *load(const struct certs *certs, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s.crt", certs->dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    assert_non_null(certificate);
    return certificate;
}

static mode_t mode_of(const struct certs *certs, const char *file)
{
    char path[160];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", certs->dir, file);
    return stat(path, &st) ? 0 : st.st_mode & 07777;
}

static void cert_issue__names_and_uses__are_in_it(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    const char *alts[] = {"backup1.example.org", "10.1.2.3", "fd00::7", NULL};
    assert_int_equal(sl_cert_issue(certs->dir, "backup1", alts, 30, &err), 0);
    X509 *host = load(certs, "backup1"), *ca = load(certs, "ca");
    assert_int_equal(X509_check_host(host, "backup1", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(host, "backup1.example.org", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(host, "backup2", 0, 0, NULL), 0);
    assert_int_equal(X509_check_ip_asc(host, "10.1.2.3", 0), 1);
    assert_int_equal(X509_check_ip_asc(host, "fd00::7", 0), 1);
    assert_int_equal(X509_check_ip_asc(host, "10.1.2.4", 0), 0);
    assert_int_equal(X509_get_version(host), X509_VERSION_3);
    assert_int_equal(X509_check_purpose(host, X509_PURPOSE_SSL_SERVER, 0), 1);
    assert_int_equal(X509_check_purpose(host, X509_PURPOSE_SSL_CLIENT, 0), 1);
    assert_int_equal(X509_check_ca(host), 0);
    assert_int_equal(X509_check_ca(ca), 1);
    assert_int_equal(X509_check_issued(ca, host), X509_V_OK);
    EVP_PKEY *key = X509_get0_pubkey(host);
    char group[32];
    size_t length;
    assert_int_equal(EVP_PKEY_get_group_name(key, group, sizeof group, &length), 1);
    assert_string_equal(group, "prime256v1");
    int days, seconds;
    assert_int_equal(ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(host)), 1);
    assert_in_range(days, 29, 30);
    X509_free(host);
    X509_free(ca);
    assert_int_equal(mode_of(certs, "backup1.key"), 0600);
    assert_int_equal(mode_of(certs, "ca.key"), 0600);
}

static void cert_issue__longer_than_the_authority__ends_with_it(void **state)
{
    struct certs *certs = *state;
    certs_set_end(certs, "ca", 10 * 86400);
    struct sl_err err;
    assert_int_equal(sl_cert_issue(certs->dir, "db1", NULL, 365, &err), 0);
    X509 *host = load(certs, "db1"), *ca = load(certs, "ca");
    assert_int_equal(ASN1_TIME_compare(X509_get0_notAfter(host), X509_get0_notAfter(ca)), 0);
    X509_free(host);
    X509_free(ca);
}

static void cert_issue__name_taken__refused_and_kept(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    certs_issue(certs, "db1", NULL);
    X509 *before = load(certs, "db1");
    assert_int_equal(sl_cert_issue(certs->dir, "db1", NULL, 0, &err), SL_ERR_EXISTS);
    assert_int_equal(sl_cert_init(certs->dir, &err), SL_ERR_EXISTS);
    X509 *after = load(certs, "db1");
    assert_int_equal(X509_cmp(before, after), 0);
    X509_free(before);
    X509_free(after);
    struct sl_tls *tls = certs_tls_must(certs, "db1", false);
    assert_in_range(sl_tls_days_left(tls), 823, 825);
    sl_tls_free(tls);
}

static void cert_issue__only_the_certificate_is_taken__no_key_left(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    char path[160];
    snprintf(path, sizeof path, "%s/db1.crt", certs->dir);
    close(open(path, O_CREAT | O_WRONLY, 0644));
    assert_int_equal(sl_cert_issue(certs->dir, "db1", NULL, 0, &err), SL_ERR_EXISTS);
    assert_int_equal(mode_of(certs, "db1.key"), 0);
    assert_int_not_equal(mode_of(certs, "db1.crt"), 0);
}

static void cert_issue__bad_names__refused(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    const char *names[] = {
        "",     "ca",
        "../x", ".x",
        "-x",   "a b",
        "a,b",  "a\nb",
        "a/b",  "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(sl_cert_issue(certs->dir, names[i], NULL, 0, &err), SL_ERR_USAGE);
    const char *alts[] = {"ok", "x,IP:1.2.3.4", NULL};
    assert_int_equal(sl_cert_issue(certs->dir, "db1", alts, 0, &err), SL_ERR_USAGE);
    assert_int_equal(mode_of(certs, "db1.key"), 0);
}

static void cert_issue__no_authority__hint_says_init(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    char path[160];
    snprintf(path, sizeof path, "%s/ca.crt", certs->dir);
    unlink(path);
    assert_int_equal(sl_cert_issue(certs->dir, "db1", NULL, 0, &err), SL_ERR_OPEN);
    assert_non_null(strstr(err.hint, "cert init"));
}

/* Every failing call in turn: no half pair of files, and the next attempt succeeds. */
static void cert_issue__each_call_failing__leaves_nothing(void **state)
{
    struct certs *certs = *state;
    bool untouched = false;
    for (unsigned n = 1; !untouched && n < 200; n++) {
        char rule[64], path[160];
        struct sl_err err;
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        sl_fault_set(rule);
        int rc = sl_cert_issue(certs->dir, "db1", NULL, 0, &err);
        untouched = sl_fault_passed() < n;
        sl_fault_set(NULL);
        if (untouched) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc < 0);
        assert_int_equal(err.code, rc);
        assert_int_equal(mode_of(certs, "db1.key"), 0);
        assert_int_equal(mode_of(certs, "db1.crt"), 0);
        snprintf(path, sizeof path, "%s/db1.key", certs->dir);
    }
    assert_true(untouched);
}

static void tls_new__key_others_may_read__refused(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    struct sl_tls *tls = NULL;
    char path[160];
    certs_issue(certs, "db1", NULL);
    snprintf(path, sizeof path, "%s/db1.key", certs->dir);
    chmod(path, 0644);
    assert_int_equal(certs_tls(certs, "db1", false, &tls, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.hint, "chmod 600"));
    chmod(path, 0620);
    assert_int_equal(certs_tls(certs, "db1", false, &tls, &err), SL_ERR_CONFIG);
    assert_null(tls);
}

static void tls_new__key_of_another__refused(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    char from[160], to[160];
    struct sl_tls *tls = NULL;
    certs_issue(certs, "db1", NULL);
    certs_issue(certs, "db2", NULL);
    snprintf(from, sizeof from, "%s/db2.key", certs->dir);
    snprintf(to, sizeof to, "%s/db1.key", certs->dir);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(certs_tls(certs, "db1", true, &tls, &err), SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "does not belong"));
}

static void tls_new__files_missing_or_garbage__says_which(void **state)
{
    struct certs *certs = *state;
    struct sl_err err;
    struct sl_tls *tls = NULL;
    char path[160];
    assert_int_equal(certs_tls(certs, "nobody", true, &tls, &err), SL_ERR_OPEN);
    assert_non_null(strstr(err.msg, "nobody.crt"));
    certs_issue(certs, "db1", NULL);
    snprintf(path, sizeof path, "%s/db1.crt", certs->dir);
    FILE *file = fopen(path, "w");
    fputs("no certificate\n", file);
    fclose(file);
    assert_int_equal(certs_tls(certs, "db1", true, &tls, &err), SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "db1.crt"));
    struct sl_tls_files none = {0};
    assert_int_equal(sl_tls_new(&none, true, &tls, &err), SL_ERR_CONFIG);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(cert_issue__names_and_uses__are_in_it),
        TEST(cert_issue__longer_than_the_authority__ends_with_it),
        TEST(cert_issue__name_taken__refused_and_kept),
        TEST(cert_issue__only_the_certificate_is_taken__no_key_left),
        TEST(cert_issue__bad_names__refused),
        TEST(cert_issue__no_authority__hint_says_init),
        TEST(cert_issue__each_call_failing__leaves_nothing),
        TEST(tls_new__key_others_may_read__refused),
        TEST(tls_new__key_of_another__refused),
        TEST(tls_new__files_missing_or_garbage__says_which),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
