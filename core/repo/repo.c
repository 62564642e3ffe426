/* A repository as a whole: what makes a store one, and names in it. repo.json says who it is; it is
 * an object as all others, with the UUID and the seed that its own checks need inside. */
#include "core/base/alloc.h"
#include "core/repo/json.h"
#include "core/repo/repo_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REPO_VERSION  1
#define REPO_JSON_MAX (16u * 1024)

/* --- repo.json ------------------------------------------------------------------------------- */

static int encode(const struct sl_repo *repo, char **ret_json, struct sl_err *err)
{
    char uuid[SL_ID_TEXT], seed[17];
    snprintf(seed, sizeof seed, "%016" PRIx64, repo->digest_seed);
    return sl_repo_json_line(json_pack("{s:i, s:s, s:s}", "version", REPO_VERSION, "uuid",
                                       sl_id_text(&repo->uuid, uuid), "digest_seed", seed),
                             ret_json, err);
}

static int parse_seed(const char *text, uint64_t *ret_seed)
{
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return SL_ERR_FORMAT;
    *ret_seed = strtoull(text, NULL, 16);
    return 0;
}

static int decode(const char *json, size_t count, struct sl_repo *repo, struct sl_err *err)
{
    json_t *root = NULL;
    char uuid[SL_ID_TEXT], seed[17];
    int rc = sl_repo_json_read(json, count, SL_REPO_FILE, REPO_VERSION, &root, err);
    if (rc)
        return rc;
    if (sl_repo_json_string(root, "uuid", uuid, sizeof uuid) < 0 ||
        sl_id_parse(uuid, &repo->uuid) < 0 ||
        sl_repo_json_string(root, "digest_seed", seed, sizeof seed) < 0 ||
        parse_seed(seed, &repo->digest_seed) < 0)
        rc = sl_err_set(err, SL_ERR_FORMAT, "%s lacks its UUID or digest seed", SL_REPO_FILE);
    json_decref(root);
    return rc;
}

/* The content of repo.json before its digests can be checked: they need the seed that is in it.
 * What is read here is believed only if the object then proves whole under that seed. */
static int read_unchecked(struct sl_repo *repo, struct sl_file *file, uint64_t file_bytes,
                          uint8_t *page, struct sl_err *err)
{
    const struct sl_store_ops *ops = repo->store->ops;
    struct sl_trailer trailer;
    if (file_bytes < SL_OBJECT_TRAILER_BYTES)
        return sl_err_set(err, SL_ERR_FORMAT, "it has only %" PRIu64 " bytes", file_bytes);
    int rc =
        ops->read(file, page, SL_OBJECT_TRAILER_BYTES, file_bytes - SL_OBJECT_TRAILER_BYTES, err);
    if (rc == 0)
        rc = sl_trailer_decode(page, file_bytes, &trailer, err);
    if (rc)
        return rc;
    if (trailer.length > REPO_JSON_MAX || trailer.footer_offset < sl_align_up(trailer.length))
        return sl_err_set(err, SL_ERR_FORMAT, "it has an impossible length");
    rc = ops->read(file, page, sl_align_up(trailer.length), 0, err);
    if (rc == 0)
        rc = decode((const char *)page, trailer.length, repo, err);
    return rc;
}

static int load(struct sl_repo *repo, struct sl_err *err)
{
    const struct sl_store_ops *ops = repo->store->ops;
    struct sl_file *file;
    uint64_t file_bytes;
    int rc = ops->open(repo->store, SL_REPO_FILE, &file, &file_bytes, err);
    if (rc)
        return rc;
    uint8_t *page = sl_pages_alloc(REPO_JSON_MAX);
    if (page)
        rc = read_unchecked(repo, file, file_bytes, page, err);
    else
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for %s", SL_REPO_FILE);
    ops->close(file);
    sl_pages_free(page, REPO_JSON_MAX);
    if (rc)
        return sl_err_prefix(err, "%s in %s", SL_REPO_FILE, repo->store->label), rc;
    char *json;
    size_t count;
    rc = sl_repo_fetch(repo, SL_REPO_FILE, REPO_JSON_MAX, &json, &count, err);
    if (rc == 0)
        sl_free(json);
    return rc;
}

/* --- opening --------------------------------------------------------------------------------- */

static int not_empty(void *arg, const char *name, bool is_folder, uint64_t length)
{
    (void)arg;
    (void)length;
    /* what mkfs makes is nobody's data */
    return is_folder && !strcmp(name, "lost+found") ? 0 : 1;
}

/* There is no repo.json: 0 if the store is empty, 1 if one has come meanwhile. */
static int check_empty(struct sl_repo *repo, struct sl_err *err)
{
    int rc = repo->store->ops->list(repo->store, "", not_empty, NULL, err);
    if (rc <= 0)
        return rc;
    rc = load(repo, err); /* another creator may have been faster */
    if (rc == 0)
        return 1;
    if (rc != SL_ERR_NOT_FOUND)
        return rc;
    sl_err_set(err, SL_ERR_REPO, "%s is no repository: it has no %s, but other things",
               repo->store->label, SL_REPO_FILE);
    return sl_err_hint(err, "give an empty folder for a new repository"), SL_ERR_REPO;
}

static int make_identity(struct sl_repo *repo, struct sl_err *err)
{
    uint8_t random[sizeof repo->uuid + sizeof repo->digest_seed];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return sl_err_sys(err, SL_ERR_CRYPTO, errno, "could not get random bytes");
    memcpy(repo->uuid.bytes, random, sizeof repo->uuid);
    memcpy(&repo->digest_seed, random + sizeof repo->uuid, sizeof repo->digest_seed);
    repo->uuid.bytes[6] = (uint8_t)(0x40 | (repo->uuid.bytes[6] & 0x0f)); /* version 4, RFC 4122 */
    repo->uuid.bytes[8] = (uint8_t)(0x80 | (repo->uuid.bytes[8] & 0x3f));
    return 0;
}

/* Make the store a repository; of several that try, one wins and the others use what it made. */
static int create_here(struct sl_repo *repo, struct sl_err *err)
{
    char *json = NULL;
    int rc = make_identity(repo, err);
    if (rc == 0)
        rc = encode(repo, &json, err);
    if (rc)
        return rc;
    repo->settled = true; /* itself is what would be settled */
    rc = sl_repo_put(repo, SL_REPO_FILE, json, strlen(json), NULL, NULL, err);
    sl_free(json);
    if (rc == SL_ERR_REPO || rc == SL_ERR_EXISTS) { /* taken by another creator */
        repo->settled = false;
        rc = load(repo, err);
    }
    return rc;
}

static int open_or_create(struct sl_repo *repo, bool create, struct sl_err *err)
{
    int rc = load(repo, err);
    if (rc != SL_ERR_NOT_FOUND)
        return rc;
    rc = check_empty(repo, err);
    if (rc)
        return rc < 0 ? rc : 0;
    if (create)
        return create_here(repo, err);
    sl_err_set(err, SL_ERR_NOT_FOUND, "there is no repository in %s", repo->store->label);
    return sl_err_hint(err, "\"sluice stanza-create\" makes one"), SL_ERR_NOT_FOUND;
}

int sl_repo_open(struct sl_store *store, bool create, struct sl_repo **ret_repo, struct sl_err *err)
{
    struct sl_repo *repo = sl_calloc(1, sizeof *repo);
    if (!repo)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a repository");
    repo->store = store;
    /* errors come and go on the way (not there yet, another was faster): `err` gets the last one */
    struct sl_err last;
    int rc = open_or_create(repo, create, &last);
    if (rc) {
        sl_free(repo);
        return sl_err_copy(err, &last);
    }
    *ret_repo = repo;
    return 0;
}

void sl_repo_close(struct sl_repo *repo)
{
    sl_free(repo);
}

/* --- names ----------------------------------------------------------------------------------- */

int sl_repo_name(const char *stanza, const char *name, bool allow_empty,
                 char full[SL_FULL_NAME_MAX], struct sl_err *err)
{
    if (strlen(stanza) >= SL_STANZA_MAX || strchr(stanza, '/') || !strcmp(stanza, SL_REPO_FILE) ||
        !strcmp(stanza, "lost+found") || sl_store_name_check(stanza, false, NULL) < 0)
        return sl_err_set(err, SL_ERR_USAGE, "\"%.80s\" is no name for a stanza", stanza);
    int rc = sl_store_name_check(name, allow_empty, err);
    if (rc)
        return rc;
    if (strlen(name) >= SL_NAME_MAX)
        return sl_err_set(err, SL_ERR_USAGE, "the object's name is longer than %d bytes",
                          SL_NAME_MAX - 1);
    snprintf(full, SL_FULL_NAME_MAX, "%s%s%s", stanza, *name ? "/" : "", name);
    return 0;
}
