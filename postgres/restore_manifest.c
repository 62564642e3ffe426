/* backup_manifest in the restored folder, in PostgreSQL's own form (backup_manifest.c, documented
 * in "Backup Manifest Format"), so that pg_verifybackup can check what was restored. It is written
 * while the entries pass by, and says nothing of files that restore adds. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/repo/record.h"
#include "postgres/restore_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MANIFEST    "backup_manifest"
#define VERSION_TWO 170000 /* since then with the system identifier */
#define LINE_ROOM   (SL_PATH_MAX * 6 + 512)

struct sl_pg_manifest_out {
    FILE *file;
    EVP_MD_CTX *sha;
    bool any;
    char line[LINE_ROOM];
};

static int write_failed(struct sl_err *err, int number)
{
    return sl_err_sys(err, SL_ERR_WRITE, number, "could not write \"%s\"", MANIFEST);
}

/* A piece of text, into the file and the sum. */
__attribute__((format(printf, 3, 4))) static int put(struct sl_pg_manifest_out *out,
                                                     struct sl_err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int count = vsnprintf(out->line, sizeof out->line, fmt, args);
    va_end(args);
    if (count < 0 || (size_t)count >= sizeof out->line)
        return sl_err_set(err, SL_ERR_INTERNAL, "a line of %s is too long", MANIFEST);
    int fault = sl_fault("pg.restore_manifest");
    if (fault || fwrite(out->line, 1, (size_t)count, out->file) != (size_t)count)
        return write_failed(err, fault ? fault : errno);
    return sl_sha256_add(out->sha, out->line, (size_t)count, err);
}

int sl_pg_manifest_begin(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_manifest_out *out = sl_calloc(1, sizeof *out);
    if (!out)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    r->manifest = out;
    int fd =
        openat(r->root_fd, MANIFEST, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    out->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out->file) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return write_failed(err, number);
    }
    out->sha = sl_sha256_new(err);
    if (!out->sha)
        return SL_ERR_NO_MEMORY;
    json_int_t version = json_integer_value(json_object_get(r->info.json, "pg_version_num"));
    int rc = put(out, err, "{ \"PostgreSQL-Backup-Manifest-Version\": %d,\n",
                 version >= VERSION_TWO ? 2 : 1);
    if (!rc && version >= VERSION_TWO)
        rc = put(out, err, "\"System-Identifier\": %llu,\n", (unsigned long long)r->info.system_id);
    return rc ? rc : put(out, err, "\"Files\": [");
}

/* "Path" in quotes, or hex digits as "Encoded-Path" where it is not UTF-8. Returns owned. */
static char *path_field(const char *path)
{
    json_t *string = json_string(path);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL, *text = NULL;
    json_decref(string);
    if (quoted) {
        text = sl_asprintf("\"Path\": %s", quoted);
        free(quoted); /* jansson's */
        return text;
    }
    size_t bytes = strlen(path);
    SL_CLEANUP_FREE char *hex = sl_alloc(bytes * 2 + 1);
    for (size_t i = 0; hex && i < bytes; i++)
        snprintf(hex + i * 2, 3, "%02x", (unsigned char)path[i]);
    return hex ? sl_asprintf("\"Encoded-Path\": \"%s\"", bytes ? hex : "") : NULL;
}

int sl_pg_manifest_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                         struct sl_err *err)
{
    struct sl_pg_manifest_out *out = r->manifest;
    char time_text[40], sum[64] = "";
    if (entry->kind != SL_ENTRY_FILE)
        return 0;
    SL_CLEANUP_FREE char *path = path_field(entry->path);
    if (!path)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    time_t seconds = (time_t)(entry->mtime_ns / SL_NS_PER_S);
    struct tm tm;
    strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M:%S GMT", gmtime_r(&seconds, &tm));
    uint32_t crc = entry->crc32c; /* its bytes as they lie in memory on a little-endian host */
    if (entry->flags & SL_ENTRY_HAS_CRC32C)
        snprintf(sum, sizeof sum,
                 ", \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"%02x%02x%02x%02x\"",
                 crc & 255, crc >> 8 & 255, crc >> 16 & 255, crc >> 24);
    int rc = put(out, err, "%s\n{ %s, \"Size\": %llu, \"Last-Modified\": \"%s\"%s }",
                 out->any ? "," : "", path, (unsigned long long)entry->size, time_text, sum);
    out->any = true;
    return rc;
}

int sl_pg_manifest_end(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_manifest_out *out = r->manifest;
    char start[SL_PG_LSN_BYTES], stop[SL_PG_LSN_BYTES], hex[SL_SHA256_BYTES * 2 + 1];
    uint8_t digest[SL_SHA256_BYTES];
    int rc = put(out, err,
                 "\n],\n\"WAL-Ranges\": [\n{ \"Timeline\": %u, \"Start-LSN\": \"%s\", "
                 "\"End-LSN\": \"%s\" }\n],\n",
                 r->info.timeline, sl_pg_lsn_text(r->info.start_lsn, start),
                 sl_pg_lsn_text(r->info.stop_lsn, stop));
    if (!rc)
        rc = sl_sha256_end(out->sha, digest, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + i * 2, 3, "%02x", digest[i]);
    if (fprintf(out->file, "\"Manifest-Checksum\": \"%s\"}\n", hex) < 0 || fflush(out->file))
        return write_failed(err, errno);
    if (r->as_root && fchown(fileno(out->file), r->control.uid, r->control.gid))
        return write_failed(err, errno);
    if (fsync(fileno(out->file)))
        return sl_err_sys(err, SL_ERR_SYNC, errno, "could not sync \"%s\"", MANIFEST);
    return 0;
}

void sl_pg_manifest_free(struct sl_pg_restore *r)
{
    if (!r->manifest)
        return;
    if (r->manifest->file)
        fclose(r->manifest->file);
    EVP_MD_CTX_free(r->manifest->sha);
    sl_free(r->manifest);
    r->manifest = NULL;
}
