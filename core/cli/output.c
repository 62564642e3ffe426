/* What a command says at its end: errors for people and for programs, results as JSON. */
#include "core/cli/cli.h"

#include "core/base/json.h"
#include "core/base/log.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JSON_VERSION 1 /* of every document of --output=json: fields are only ever added */

void sl_output_plain(FILE *out, const char *text)
{
    for (; *text; text++)
        putc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
}

void sl_output_hint(struct sl_err *err)
{
    if (err->hint[0] || err->code != SL_ERR_DENIED || (err->sys != EACCES && err->sys != EPERM))
        return;
    char room[1024];
    struct passwd entry, *found = NULL;
    (void)getpwuid_r(geteuid(), &entry, room, sizeof room, &found);
    sl_err_hint(err,
                "this runs as the user \"%s\" (%u): run it as the owner (often postgres), or give "
                "the user the right; \"namei -l PATH\" shows where it ends",
                found ? found->pw_name : "?", (unsigned)geteuid());
}

void sl_output_error(const struct sl_err *err)
{
    fprintf(stderr, "ERROR: [%03d]: ", sl_code_exit(err->code));
    sl_output_plain(stderr, err->msg);
    if (err->hint[0]) {
        fputs("\nHINT: ", stderr);
        sl_output_plain(stderr, err->hint);
    }
    fputc('\n', stderr);
}

static json_t *error_object(const struct sl_err *error)
{
    json_t *object = json_pack("{s:i, s:s, s:o}", "code", sl_code_exit(error->code), "name",
                               sl_code_name(error->code), "message", sl_json_text(error->msg));
    if (object && error->hint[0] &&
        json_object_set_new(object, "hint", sl_json_text(error->hint))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

int sl_output_json(json_t *result, const struct sl_err *error, struct sl_err *err)
{
    /* "version" comes first */
    json_t *whole = json_pack("{s:i}", "version", JSON_VERSION);
    int failed = !whole || (result && json_object_update_missing(whole, result));
    if (!failed && error && error->code)
        failed = json_object_set_new(whole, "error", error_object(error));
    if (!failed)
        failed = json_dumpf(whole, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(whole);
    if (failed)
        return sl_err_set(err, SL_ERR_WRITE, "could not write the result as JSON");
    putchar('\n');
    return 0;
}

void sl_output_log(const struct sl_options *options)
{
    enum sl_log_level threshold = sl_log_level_named(sl_option_string(options, "log-level"));
    bool json = strcmp(sl_option_string(options, "output"), "json") == 0;
    sl_log_set(json ? sl_log_sink_json : sl_log_sink_text, NULL, threshold);
}
