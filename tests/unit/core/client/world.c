/* See the header. */
#include "tests/unit/core/client/world.h"

#include "core/base/fault.h"
#include "core/base/thread.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- target ---------------------------------------------------------------------------------- */

static bool permit(void *arg, const char *client, const char *stanza)
{
    (void)arg;
    (void)client;
    return strcmp(stanza, "forbidden") != 0;
}

static bool listens(const struct world_options *options)
{
    return options->listening || options->proxied;
}

void world_start(struct world *world, const struct world_options *options, uint16_t port)
{
    struct sl_err err;
    struct sl_target_config config = {.repo = world->repo,
                                      .workers = 2,
                                      .pool_bytes = 16 * MiB,
                                      .seal = options->seal,
                                      .heartbeat_ms = options->heartbeat_ms,
                                      .dead_ms = options->dead_ms,
                                      .lanes_per_session = options->lanes,
                                      .software = "test target",
                                      .permit = permit,
                                      .permit_remove = options->may_remove ? permit : NULL,
                                      .tls = listens(options) ? world->server : NULL,
                                      .listen_address = "127.0.0.1",
                                      .listen_port = port,
                                      .rdma_note = "none in this test"};
    int rc = sl_target_start(&config, &world->target, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    MUST(rc == 0);
    world->embedded = (struct sl_embedded){world->target, sl_target_attach, sl_target_local_lane};
    if (listens(options))
        snprintf(world->host, sizeof world->host, "127.0.0.1:%u", sl_target_port(world->target));
}

void world_open(struct world *world, const struct world_options *options)
{
    struct sl_err err;
    char path[96];
    *world = (struct world){0};
    certs_make(&world->certs);
    snprintf(path, sizeof path, "%s/repo", world->certs.dir);
    MUST(sl_store_posix_open(path, true, &world->store, &err) == 0);
    MUST(sl_repo_open(world->store, true, &world->repo, &err) == 0);
    if (listens(options)) {
        certs_issue(&world->certs, "backup1", "127.0.0.1");
        certs_issue(&world->certs, "db1", NULL);
        world->server = certs_tls_must(&world->certs, "backup1", true);
        world->client_tls = certs_tls_must(&world->certs, "db1", false);
    }
    world_start(world, options, 0);
    if (options->proxied)
        world->proxy = proxy_new(world->host);
    world->hosts[0] = world->proxy ? proxy_host(world->proxy) : world->host;
    world->config =
        (struct sl_client_config){.stanza = "main",
                                  .hosts = listens(options) ? world->hosts : NULL,
                                  .embedded = listens(options) ? NULL : &world->embedded,
                                  .tls = world->client_tls,
                                  .tls_name = options->proxied ? "backup1" : NULL,
                                  .traffic_class = -1,
                                  .connect_ms = 5000,
                                  .io_ms = 20000};
}

struct sl_client *world_connect(struct world *world)
{
    MUST(!world->client);
    return world->client = open_must(&world->config);
}

void world_close(struct world *world)
{
    sl_fault_set(NULL);
    sl_client_close(world->client);
    if (world->proxy)
        proxy_free(world->proxy);
    if (world->target)
        sl_target_stop(world->target, 0);
    sl_tls_free(world->server);
    sl_tls_free(world->client_tls);
    sl_repo_close(world->repo);
    world->store->ops->free(world->store);
    certs_remove(&world->certs);
}

void world_path(const struct world *world, const char *name, char *path, size_t room)
{
    snprintf(path, room, "%s/repo/main/%s", world->certs.dir, name);
}

uint8_t *content_new(unsigned seed, size_t count, bool holes)
{
    uint8_t *bytes = malloc(count + 1);
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    MUST(bytes);
    for (size_t i = 0; i < count; i++) {
        if (i % 8 == 0)
            x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(holes && i / MiB % 3 == 1 ? 0 : x >> (i % 8 * 8) | 1);
    }
    return bytes;
}

/* --- clients ------------------------------------------------------------------------------------
 */

struct sl_client *open_must(const struct sl_client_config *config)
{
    struct sl_client *client = NULL;
    struct sl_err err;
    int rc = sl_client_open(config, SOON, &client, &err);
    if (rc)
        print_error("%s\n", err.msg);
    MUST(rc == 0);
    return client;
}

/* Uploads `bytes`, in pieces of awkward sizes. */
int upload(struct sl_client *client, const char *name, const uint8_t *bytes, size_t count,
           struct sl_stored *stored, struct sl_err *err)
{
    struct sl_upload *up;
    int rc = sl_upload_begin(client, name, count, SOON, &up, err);
    size_t done = 0, piece = 1;
    while (!rc && done < count) {
        size_t part = count - done < piece ? count - done : piece;
        if (piece % 2) {
            rc = sl_upload_write(up, bytes + done, part, err);
        } else {
            uint8_t *at;
            size_t room;
            rc = sl_upload_space(up, &at, &room, err);
            part = part < room ? part : room;
            if (!rc) {
                memcpy(at, bytes + done, part);
                rc = sl_upload_advance(up, part, err);
            }
        }
        done += part;
        piece = piece < 300000 ? piece * 3 + piece % 2 : 7;
        if (!rc)
            MUST(sl_upload_length(up) == done);
        else
            sl_upload_abort(up);
    }
    return rc ? rc : sl_upload_commit(up, 0, SOON, stored, err);
}

int fetch_and_compare(struct sl_client *client, const char *name, const uint8_t *bytes,
                      size_t count, struct sl_err *err)
{
    char *got = NULL;
    size_t got_count = 0;
    int rc = sl_client_fetch(client, name, 256 * MiB, SOON, &got, &got_count, err);
    if (rc)
        return rc;
    MUST(got_count == count && memcmp(got, bytes, count) == 0);
    free(got);
    return 0;
}

struct job {
    struct sl_client *client;
    unsigned number, objects;
    size_t bytes;
    pthread_t thread;
    unsigned redone; /* after a session was lost */
    int rc;
    struct sl_err err;
};

/* Does an object over until it is stored, as a caller of the client should. */
static void *work(void *arg)
{
    struct job *job = arg;
    sl_deadline deadline = sl_deadline_in_ms(60000);
    for (unsigned i = 0; i < job->objects && !job->rc; i++) {
        char name[64];
        struct sl_stored stored;
        size_t count = job->bytes / 2 + (job->number * 7919u + i * 104729u) % job->bytes;
        uint8_t *bytes = content_new(job->number * 100 + i, count, i % 2);
        snprintf(name, sizeof name, "j%u/o%u", job->number, i);
        while ((job->rc = upload(job->client, name, bytes, count, &stored, &job->err)) &&
               sl_code_retryable(job->rc) && !sl_deadline_passed(deadline))
            job->redone++;
        while (!job->rc &&
               (job->rc = fetch_and_compare(job->client, name, bytes, count, &job->err)) &&
               sl_code_retryable(job->rc) && !sl_deadline_passed(deadline)) {
            job->redone++;
            job->rc = 0;
        }
        free(bytes);
    }
    return NULL;
}

unsigned run_jobs(struct sl_client *client, unsigned threads, unsigned objects, size_t bytes,
                  void (*meanwhile)(void *arg), void *arg)
{
    struct job jobs[16];
    unsigned redone = 0;
    for (unsigned i = 0; i < threads; i++) {
        jobs[i] = (struct job){.client = client, .number = i, .objects = objects, .bytes = bytes};
        MUST(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]) == 0);
    }
    if (meanwhile)
        meanwhile(arg);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(jobs[i].thread, NULL);
        if (jobs[i].rc)
            print_error("job %u: %s\n", i, jobs[i].err.msg);
        assert_int_equal(jobs[i].rc, 0);
        redone += jobs[i].redone;
    }
    return redone;
}

/* --- what was found ----------------------------------------------------------------------------
 */

int note_entry(void *arg, const struct sl_entry *entry)
{
    struct listing *listing = arg;
    listing->ordered &= strcmp(listing->last, entry->name) < 0;
    snprintf(listing->last, sizeof listing->last, "%s", entry->name);
    listing->count++;
    return listing->stop_at == listing->count ? SL_ERR_CANCELLED : 0;
}

void note_damage(void *arg, const char *name, int code, const char *text)
{
    struct damages *damages = arg;
    damages->count++;
    damages->code = code;
    snprintf(damages->name, sizeof damages->name, "%s", name);
    snprintf(damages->text, sizeof damages->text, "%s", text);
    MUST(text[0]);
}

void note_step(void *arg, const struct sl_verify_progress *progress)
{
    (void)progress;
    ((struct damages *)arg)->steps++;
}

int no_sigpipe(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL);
    return 0;
}
