/* The small commands: cert, version. */
#include "core/cli/cli.h"

#include "core/session/cert.h"

#include <string.h>

int sl_cli_version(struct sl_invocation *invocation, struct sl_err *err)
{
    (void)err;
    if (invocation->json)
        json_object_set_new(invocation->result, "sluice", json_string(SLUICE_VERSION));
    else
        printf("sluice %s\n", SLUICE_VERSION);
    return 0;
}

static int init(struct sl_invocation *invocation, const char *dir, struct sl_err *err)
{
    int rc = sl_cert_init(dir, err);
    if (rc)
        return rc;
    json_object_set_new(invocation->result, "dir", json_string(dir));
    if (!invocation->json)
        printf("made %s/ca.crt and %s/ca.key\n"
               "next: sluice cert issue --dir=%s NAME, for each backup and database host\n",
               dir, dir, dir);
    return 0;
}

static int issue(struct sl_invocation *invocation, const char *name, struct sl_err *err)
{
    const struct sl_options *options = invocation->options;
    const char *dir = sl_option_string(options, "dir");
    const char **alt_names;
    sl_option_list(options, "alt-name", &alt_names);
    int rc = sl_cert_issue(dir, name, alt_names, (unsigned)sl_option_int(options, "days"), err);
    if (rc)
        return rc;
    json_object_set_new(invocation->result, "name", json_string(name));
    json_object_set_new(invocation->result, "dir", json_string(dir));
    if (!invocation->json)
        printf(
            "made %s/%s.crt and %s/%s.key\n"
            "next: copy both and ca.crt to the host; the key (mode 0600) belongs to the user that "
            "uses it\n",
            dir, name, dir, name);
    return 0;
}

int sl_cli_cert(struct sl_invocation *invocation, struct sl_err *err)
{
    const char *verb = invocation->args[0];
    if (strcmp(verb, "init") == 0)
        return init(invocation, invocation->args[1], err);
    if (strcmp(verb, "issue") == 0)
        return issue(invocation, invocation->args[1], err);
    sl_err_set(err, SL_ERR_USAGE, "\"cert %.32s\" is unknown", verb);
    return sl_err_hint(err, "it is cert init DIR, or cert issue NAME");
}
