/* Recovery configuration as text. Files are written by restore_finish.c. */
#include "postgres/recovery_conf.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- quoting -----------------------------------------------------------------------------------
 */

static bool plain_word(const char *word)
{
    return *word && !word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789_./=:@+,%-")];
}

char *sl_pg_shell_word(const char *word)
{
    bool plain = plain_word(word);
    char *text = sl_alloc(strlen(word) * 4 + 3), *to = text;
    if (!text)
        return NULL;
    if (!plain)
        *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(to, "'\\''", 4);
            to += 4;
            continue;
        }
        if (*word == '%')
            *to++ = '%';
        *to++ = *word;
    }
    if (!plain)
        *to++ = '\'';
    *to = '\0';
    return text;
}

char *sl_pg_conf_value(const char *value)
{
    char *text = sl_alloc(strlen(value) * 2 + 3), *to = text;
    if (!text)
        return NULL;
    *to++ = '\'';
    for (; *value; value++) {
        if (*value == '\'' || *value == '\\')
            *to++ = *value;
        *to++ = *value;
    }
    *to++ = '\'';
    *to = '\0';
    return text;
}

int sl_pg_conf_check(const char *what, const char *value, struct sl_err *err)
{
    if (!strpbrk(value, "\n\r"))
        return 0;
    return sl_err_set(err, SL_ERR_USAGE,
                      "%s has a line break, which cannot stand in postgresql.auto.conf", what);
}

/* --- postgresql.auto.conf ----------------------------------------------------------------------
 */

/* Does the line set this parameter? Names are case-insensitive (guc-file.l). */
static bool sets(const char *line, size_t bytes, const char *name, bool prefix)
{
    size_t skip = 0, length = strlen(name);
    while (skip < bytes && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    if (bytes - skip < length || strncasecmp(line + skip, name, length) != 0)
        return false;
    char after = bytes - skip > length ? line[skip + length] : ' ';
    return prefix || after == ' ' || after == '\t' || after == '=';
}

static void copy_kept(FILE *out, const char *old, bool drop_archive_mode)
{
    while (*old) {
        size_t bytes = strcspn(old, "\n");
        bool drop = sets(old, bytes, "recovery_target", true) ||
                    sets(old, bytes, "restore_command", false) ||
                    (drop_archive_mode && sets(old, bytes, "archive_mode", false));
        if (!drop)
            fprintf(out, "%.*s\n", (int)bytes, old);
        old += bytes + (old[bytes] == '\n');
    }
}

static bool put(FILE *out, const char *name, const char *value)
{
    SL_CLEANUP_FREE char *quoted = sl_pg_conf_value(value);
    if (quoted)
        fprintf(out, "%s = %s\n", name, quoted);
    return quoted != NULL;
}

static const struct {
    enum sl_pg_recovery kind;
    const char *name;
} targets[] = {
    {SL_PG_IMMEDIATE, "recovery_target"},    {SL_PG_TO_TIME, "recovery_target_time"},
    {SL_PG_TO_NAME, "recovery_target_name"}, {SL_PG_TO_XID, "recovery_target_xid"},
    {SL_PG_TO_LSN, "recovery_target_lsn"},
};
#define TARGETS (sizeof targets / sizeof *targets)

/* The empty targets first: the server refuses a second target at the moment it is named, even by
 * an empty one after a set one (xlogrecovery.c: assign_recovery_target_name and its like). */
static bool put_targets(FILE *out, const struct sl_pg_recovery_conf *conf)
{
    bool ok = true;
    for (size_t i = 0; ok && i < TARGETS; i++)
        ok = targets[i].kind == conf->kind || put(out, targets[i].name, "");
    for (size_t i = 0; ok && i < TARGETS; i++)
        if (targets[i].kind == conf->kind)
            ok = put(out, targets[i].name, conf->target ? conf->target : "immediate");
    return ok && put(out, "recovery_target_inclusive", conf->exclusive ? "off" : "on");
}

static bool put_all(FILE *out, const struct sl_pg_recovery_conf *conf)
{
    return put(out, "restore_command", conf->restore_command) && put_targets(out, conf) &&
           put(out, "recovery_target_action",
               conf->target_action ? conf->target_action : "pause") &&
           put(out, "recovery_target_timeline",
               conf->target_timeline ? conf->target_timeline : "latest") &&
           (!conf->archive_off || put(out, "archive_mode", "off"));
}

char *sl_pg_recovery_conf_text(const char *old, const struct sl_pg_recovery_conf *conf)
{
    char *text = NULL, now[40];
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    copy_kept(out, old, conf->archive_off);
    fprintf(out, "# added by sluice restore, %s\n", sl_wall_text(sl_wall_ns(), now, sizeof now));
    bool ok = put_all(out, conf);
    if (fclose(out) || !ok) {
        free(text);
        return NULL;
    }
    char *owned = sl_strdup(text);
    free(text); /* open_memstream's */
    return owned;
}

/* --- restore_command ---------------------------------------------------------------------------
 */

/* What archive-get needs to find the repository, when it was not in the file. */
static const struct {
    const char *name;
    bool is_path;
} carried[] = {
    {"repo-path", true},        {"repo-host", false}, {"transport", false},
    {"wire-encryption", false}, {"tls-cert", true},   {"tls-key", true},
    {"tls-ca", true},           {"tls-name", false},  {"bind-address", false},
    {"traffic-class", false},   {"lanes", false},     {"queue-depth", false},
};

static bool from_outside(const struct sl_options *options, const char *name)
{
    if (!sl_option_exists(options, name) || !sl_option_is_set(options, name))
        return false;
    const char *origin = sl_option_origin(options, name);
    return !strcmp(origin, "command line") || !strcmp(origin, "environment");
}

static bool put_word(FILE *out, const char *name, const char *value, bool is_path)
{
    char absolute[PATH_MAX];
    if (is_path && realpath(value, absolute))
        value = absolute;
    SL_CLEANUP_FREE char *word = sl_asprintf("--%s=%s", name, value);
    SL_CLEANUP_FREE char *quoted = word ? sl_pg_shell_word(word) : NULL;
    if (quoted)
        fprintf(out, " %s", quoted);
    return quoted != NULL;
}

static bool put_option(FILE *out, const struct sl_options *options, const char *name, bool is_path)
{
    char number[32];
    if (!strcmp(name, "repo-host")) {
        const char **items;
        size_t count = sl_option_list(options, name, &items);
        for (size_t i = 0; i < count; i++)
            if (!put_word(out, name, items[i], false))
                return false;
        return true;
    }
    if (!strcmp(name, "traffic-class") || !strcmp(name, "lanes") || !strcmp(name, "queue-depth")) {
        snprintf(number, sizeof number, "%lld", (long long)sl_option_int(options, name));
        return put_word(out, name, number, false);
    }
    const char *value = sl_option_string(options, name);
    return !value || put_word(out, name, value, is_path);
}

static bool write_command(FILE *out, const struct sl_invocation *invocation, const char *program)
{
    SL_CLEANUP_FREE char *quoted = sl_pg_shell_word(program);
    if (!quoted)
        return false;
    fputs(quoted, out);
    if (invocation->config_path && !put_word(out, "config", invocation->config_path, true))
        return false;
    if (!put_word(out, "stanza", invocation->stanza, false))
        return false;
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        if (from_outside(invocation->options, carried[i].name) &&
            !put_option(out, invocation->options, carried[i].name, carried[i].is_path))
            return false;
    fputs(" archive-get %f \"%p\"", out);
    return true;
}

int sl_pg_restore_command(const struct sl_invocation *invocation, char **ret_command,
                          struct sl_err *err)
{
    char program[PATH_MAX], *text = NULL;
    size_t bytes;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return sl_err_sys(err, SL_ERR_INTERNAL, errno, "could not find this program's path");
    program[n] = '\0';
    FILE *out = open_memstream(&text, &bytes);
    bool ok = out && write_command(out, invocation, program);
    if (out && fclose(out))
        ok = false;
    char *owned = ok ? sl_strdup(text) : NULL;
    free(text); /* open_memstream's */
    if (!owned)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_pg_conf_check("a path or option that restore_command needs", owned, err);
    if (rc)
        sl_free(owned);
    else
        *ret_command = owned;
    return rc;
}
