/* A private certificate authority in a folder: what `sluice cert init` and `sluice cert issue` do.
 *
 * DIR/ca.crt, DIR/ca.key, and for each host DIR/NAME.crt, DIR/NAME.key. P-256 keys, X.509 v3,
 * SHA-256; a host's certificate is for TLS servers and clients alike. Keys are 0600; everything
 * is synced; nothing is overwritten. Whoever has ca.key can make anyone: keep it off the hosts.
 *
 * Both block on the disk.
 */
#ifndef SL_SESSION_CERT_H
#define SL_SESSION_CERT_H

#include "core/base/err.h"

#define SL_CERT_CA_DAYS 3650u
#define SL_CERT_DAYS    825u

/* Makes `dir` (0700) if it is missing, and the authority in it. SL_ERR_EXISTS if there is one. */
int sl_cert_init(const char *dir, struct sl_err *err);

/* Issues a certificate with common name `name` (1..63 of [A-Za-z0-9._:-], not beginning with '.'
 * or '-', not "ca"), good for `name` and the NULL-terminated `alt_names` (or NULL), each a DNS name
 * or an address by its form. `days`: 0 is SL_CERT_DAYS; cut to the authority's own end. */
int sl_cert_issue(const char *dir, const char *name, const char *const *alt_names, unsigned days,
                  struct sl_err *err);

#endif
