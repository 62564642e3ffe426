/* After a crash: is every acknowledged object there and whole, and nothing half visible?
 *
 *   repo_check REPO STANZA NAMES BYTES
 *
 * NAMES: a file of names as archive_load acknowledged them (a last line without its newline was
 * never acknowledged). Opens the repository as any program would, reads each object and compares
 * it with what its name says it holds; then verifies the whole stanza. Ends 0, or 1 when
 * something acknowledged is missing or wrong, or anything visible is damaged.
 */
#include "core/base/alloc.h"
#include "core/repo/repo.h"
#include "core/store/store.h"
#include "tests/support/archive_content.h"

#include <stdlib.h>
#include <string.h>

static unsigned long acknowledged, missing, wrong, damaged;

static void check_one(struct sl_repo *repo, const char *stanza, const char *name, size_t bytes)
{
    char full[SL_FULL_NAME_MAX], *content = NULL;
    size_t count = 0;
    struct sl_err err = {0};
    acknowledged++;
    snprintf(full, sizeof full, "%s/%s", stanza, name);
    int rc = sl_repo_fetch(repo, full, bytes + 1, &content, &count, &err);
    if (rc) {
        printf("%s: %s: %s\n", rc == SL_ERR_NOT_FOUND ? "LOST" : "DAMAGED", full, err.msg);
        *(rc == SL_ERR_NOT_FOUND ? &missing : &wrong) += 1;
        return;
    }
    uint8_t *expected = malloc(bytes + 1);
    if (!expected)
        abort();
    archive_fill(name, expected, bytes);
    if (count != bytes || memcmp(content, expected, bytes) != 0) {
        printf("WRONG CONTENT: %s\n", full);
        wrong++;
    }
    free(expected);
    sl_free(content);
}

static void on_damage(void *arg, const char *name, int code, const char *text)
{
    (void)arg;
    (void)code;
    printf("VISIBLE DAMAGE: %s: %s\n", name, text);
    damaged++;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    struct sl_err err = {0};
    struct sl_store *store;
    struct sl_repo *repo;
    size_t bytes = strtoull(argv[4], NULL, 10);
    FILE *names = fopen(argv[3], "re");
    char line[SL_NAME_MAX + 2];
    long lines = 0;
    if (!names)
        return 2;
    if (sl_store_posix_open(argv[1], false, &store, &err) ||
        sl_repo_open(store, false, &repo, &err)) {
        while (fgets(line, sizeof line, names))
            lines++;
        printf("no repository: %s (%ld acknowledged)\n", err.msg, lines);
        return lines ? 1 : 0; /* cut before it was made: fine if nothing was acknowledged */
    }
    while (fgets(line, sizeof line, names)) {
        char *end = strchr(line, '\n');
        if (!end)
            break;
        *end = '\0';
        check_one(repo, argv[2], line, bytes);
    }
    struct sl_repo_verify verify = {.damage = on_damage};
    if (sl_repo_verify(repo, argv[2], &verify, &err) && err.code != SL_ERR_NOT_FOUND) {
        printf("verify failed: %s\n", err.msg);
        return 1;
    }
    printf("acknowledged %lu, lost %lu, wrong %lu, visible damage %lu\n", acknowledged, missing,
           wrong, damaged);
    fclose(names);
    sl_repo_close(repo);
    store->ops->free(store);
    return missing || wrong || damaged ? 1 : 0;
}
