/* Config files outside of the data directory (Debian keeps them in /etc): without them a restored
 * cluster has its data and nobody knows its settings. They are stored in a folder of their own,
 * never put back in place: they name the paths of the cluster that they came from. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "postgres/backup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1u << 20)

/* The files of conf.d are known by the settings that came from them. */
static const char files_sql[] =
    "SELECT name, setting FROM pg_settings"
    " WHERE name IN ('config_file', 'hba_file', 'ident_file') AND setting <> ''"
    " UNION ALL SELECT DISTINCT 'included', sourcefile FROM pg_settings WHERE sourcefile <> ''"
    " AND sourcefile <> current_setting('config_file')";

static bool is_inside(const struct sl_pg_backup *b, const char *path)
{
    char folder[PATH_MAX], file[PATH_MAX];
    if (!realpath(b->data_folder, folder) || !realpath(path, file))
        return false;
    size_t bytes = strlen(folder);
    return !strncmp(folder, file, bytes) && file[bytes] == '/';
}

/* The last component, with a number before it where that is taken. */
static char *stored_name(const struct sl_pg_backup *b, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    char *name = sl_asprintf("%s/%s", SL_PG_CONFIG_FOLDER, base);
    for (unsigned number = 2; name; number++) {
        bool taken = false;
        for (size_t i = 0; i < b->config_count; i++)
            taken = taken || !strcmp(b->config[i].stored, name);
        if (!taken)
            return name;
        sl_free(name);
        name = sl_asprintf("%s/%u-%s", SL_PG_CONFIG_FOLDER, number, base);
    }
    return NULL;
}

/* 0 and the content, or errno. */
static int slurp(const char *path, char **ret_bytes, size_t *ret_count)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    int rc = fstat(fd, &st) ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    if (!rc && st.st_size > (off_t)FILE_BYTES_MAX)
        rc = EFBIG;
    char *bytes = rc ? NULL : sl_alloc((size_t)st.st_size + 1);
    ssize_t n = bytes ? pread(fd, bytes, (size_t)st.st_size, 0) : -1;
    if (!rc && n < 0)
        rc = bytes ? errno : ENOMEM;
    close(fd);
    if (rc) {
        sl_free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    *ret_count = (size_t)n;
    return 0;
}

static bool is_known(const struct sl_pg_backup *b, const char *path)
{
    for (size_t i = 0; i < b->config_count; i++)
        if (!strcmp(b->config[i].path, path))
            return true;
    return false;
}

static int take(struct sl_pg_backup *b, const char *name, const char *path, struct sl_err *err)
{
    if (is_inside(b, path) || is_known(b, path))
        return 0;
    if (b->config_count == SL_PG_CONFIG_MAX) {
        sl_log(SL_LOG_WARN, "postgres", "too many config files: \"%s\" is not stored", path);
        return 0;
    }
    struct sl_pg_config_file file = {0};
    int failed = slurp(path, &file.bytes, &file.count);
    if (failed) {
        sl_log(SL_LOG_WARN, "postgres", "%s \"%s\" is not stored: %s", name, path,
               strerror(failed));
        return 0;
    }
    file.name = sl_strdup(name);
    file.path = sl_strdup(path);
    file.stored = stored_name(b, path);
    b->config[b->config_count++] = file;
    return file.name && file.path && file.stored
               ? 0
               : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

static int by_stored(const void *a, const void *b)
{
    return strcmp(((const struct sl_pg_config_file *)a)->stored,
                  ((const struct sl_pg_config_file *)b)->stored);
}

int sl_pg_backup_config_find(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    int rc = sl_pg_db_query(b->db, files_sql, NULL, 0, sl_pg_backup_deadline(b), &rows, err);
    if (rc)
        return rc;
    for (int i = 0; !rc && i < sl_pg_rows_count(rows); i++) {
        const char *name = sl_pg_rows_value(rows, i, 0), *path = sl_pg_rows_value(rows, i, 1);
        if (name && path && *path == '/')
            rc = take(b, name, path, err);
    }
    if (!rc && !sl_pg_rows_count(rows))
        sl_log(SL_LOG_INFO, "postgres",
               "the server does not tell this user where its config files are");
    sl_pg_rows_free(rows);
    if (!rc) /* entries of a manifest are sorted */
        qsort(b->config, b->config_count, sizeof *b->config, by_stored);
    return rc;
}

json_t *sl_pg_backup_config_json(const struct sl_pg_backup *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->config_count; i++)
        json_array_append_new(list, json_pack("{s:s,s:o,s:o}", "name", b->config[i].name, "path",
                                              sl_json_text(b->config[i].path), "stored",
                                              sl_json_text(b->config[i].stored)));
    return list;
}

void sl_pg_backup_config_free(struct sl_pg_backup *b)
{
    for (size_t i = 0; i < b->config_count; i++) {
        sl_free(b->config[i].name);
        sl_free(b->config[i].path);
        sl_free(b->config[i].stored);
        sl_free(b->config[i].bytes);
    }
    b->config_count = 0;
}
