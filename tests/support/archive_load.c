/* Archive load for the crash tests: stores objects through the real client and notes each
 * acknowledgement the moment it has it.
 *
 *   archive_load --stanza S --ack FILE [--count N] [--first N] [--bytes B] [--threads T]
 *                [--mark DEVICE] [--chase DIR] (--repo DIR | --host H:P [--host2 H:P] --pki DIR
 * --client NAME)
 *
 * With --host2 each object is sent to both daemons at once by two threads (two writers of one
 * name, in two processes); with --chase REPOSITORY the second follows as soon as the first has
 * given the name, so that it is always the loser. --mark puts the name as a mark into the log of
 * that dm-log-writes device at each acknowledgement, before it is noted. Ends 0 when everything was
 * stored, 3 when something was not (a cut target, say): that is not its business.
 */
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/client/client.h"
#include "core/repo/repo.h"
#include "core/store/store.h"
#include "core/target/target.h"
#include "tests/support/archive_content.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/dm-ioctl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct {
    const char *stanza, *ack, *mark, *repo, *host, *host2, *chase, *pki, *client;
    uint64_t first, count;
    size_t bytes;
    unsigned threads, io_ms;
} opt = {.count = 64, .bytes = 64 * 1024, .threads = 4, .io_ms = 10000};

static struct sl_client *clients[2];
static unsigned sides = 1;
static int ack_fd;
static atomic_uint_fast64_t stored, failed;
static pthread_mutex_t mark_lock = PTHREAD_MUTEX_INITIALIZER;

/* What `dmsetup message DEVICE 0 mark NAME` does, without two processes for each (dm-ioctl.h). */
static void mark(const char *name)
{
    static int control = -1;
    union {
        struct dm_ioctl head;
        uint8_t room[sizeof(struct dm_ioctl) + sizeof(struct dm_target_msg) + SL_NAME_MAX + 8];
    } request = {.head = {.version = {4, 0, 0},
                          .data_size = sizeof request,
                          .data_start = sizeof(struct dm_ioctl)}};
    struct dm_target_msg *message = (void *)(request.room + sizeof request.head);
    snprintf(request.head.name, sizeof request.head.name, "%s", opt.mark);
    snprintf(message->message, SL_NAME_MAX + 8, "mark %s", name);
    pthread_mutex_lock(&mark_lock);
    if (control < 0)
        control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    if (control < 0 || ioctl(control, DM_TARGET_MSG, &request) != 0) {
        perror("archive_load: mark");
        abort();
    }
    pthread_mutex_unlock(&mark_lock);
}

static void acknowledge(const char *name)
{
    char line[SL_NAME_MAX + 2];
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (opt.mark)
        mark(name);
    if (write(ack_fd, line, (size_t)length) != length)
        abort();
}

static void store_one(struct sl_client *client, const char *name, const uint8_t *bytes)
{
    struct sl_err err = {0};
    struct sl_stored result;
    int rc =
        sl_client_put(client, name, bytes, opt.bytes, sl_deadline_in_ms(opt.io_ms), &result, &err);
    if (rc == 0) {
        atomic_fetch_add(&stored, 1);
        acknowledge(name);
    } else {
        atomic_fetch_add(&failed, 1);
        fprintf(stderr, "%s: %s\n", name, err.msg);
    }
}

/* Waits until the first side has given the name, or for two seconds. */
static void chase(const char *name)
{
    char path[SL_NAME_MAX + 512];
    snprintf(path, sizeof path, "%s/%s/%s", opt.chase, opt.stanza, name);
    for (int tries = 0; access(path, F_OK) != 0 && tries < 2000; tries++)
        usleep(1000);
}

static void *work(void *arg)
{
    struct sl_client *client = *(struct sl_client **)arg;
    uint8_t *bytes = malloc(opt.bytes);
    if (!bytes)
        abort();
    /* both sides walk the same names, so that they meet at each */
    static atomic_uint_fast64_t taken[2];
    unsigned side = client == clients[0] ? 0 : 1;
    for (uint64_t n; (n = atomic_fetch_add(&taken[side], 1)) < opt.count;) {
        char name[SL_NAME_MAX];
        archive_name(opt.first + n, name);
        archive_fill(name, bytes, opt.bytes);
        if (side == 1 && opt.chase)
            chase(name);
        store_one(client, name, bytes);
    }
    free(bytes);
    return NULL;
}

static int open_remote(const char *host, struct sl_client **ret, struct sl_err *err)
{
    static struct sl_tls *tls;
    char cert[512], key[512], ca[512];
    snprintf(cert, sizeof cert, "%s/%s.crt", opt.pki, opt.client);
    snprintf(key, sizeof key, "%s/%s.key", opt.pki, opt.client);
    snprintf(ca, sizeof ca, "%s/ca.crt", opt.pki);
    int rc = 0;
    if (!tls)
        rc = sl_tls_new(&(struct sl_tls_files){cert, key, ca}, false, &tls, err);
    if (rc)
        return rc;
    const char *hosts[] = {host, NULL};
    struct sl_client_config config = {.stanza = opt.stanza,
                                      .hosts = hosts,
                                      .tls = tls,
                                      .transport = SL_TRANSPORT_TCP,
                                      .traffic_class = -1,
                                      .slot_bytes_total = 16u << 20,
                                      .io_ms = opt.io_ms};
    return sl_client_open(&config, sl_deadline_in_ms(10000), ret, err);
}

static int open_embedded(struct sl_client **ret, struct sl_err *err)
{
    struct sl_store *store;
    struct sl_repo *repo;
    struct sl_target *target;
    int rc = sl_store_posix_open(opt.repo, true, &store, err);
    if (!rc)
        rc = sl_repo_open(store, true, &repo, err);
    if (!rc) {
        struct sl_target_config config = {.repo = repo, .software = "archive_load", .workers = 2};
        rc = sl_target_start(&config, &target, err);
    }
    if (rc)
        return rc;
    struct sl_embedded embedded = {target, sl_target_attach, sl_target_local_lane};
    struct sl_client_config config = {
        .stanza = opt.stanza, .embedded = &embedded, .traffic_class = -1, .io_ms = opt.io_ms};
    return sl_client_open(&config, sl_deadline_in_ms(10000), ret, err);
}

static void parse(int argc, char **argv)
{
    enum {
        STANZA = 1,
        ACK,
        COUNT,
        FIRST,
        BYTES,
        THREADS,
        MARK,
        REPO,
        HOST,
        HOST2,
        PKI,
        CLIENT,
        CHASE,
        IO
    };
    static const struct option longs[] = {
        {"stanza", 1, NULL, STANZA}, {"ack", 1, NULL, ACK},     {"count", 1, NULL, COUNT},
        {"first", 1, NULL, FIRST},   {"bytes", 1, NULL, BYTES}, {"threads", 1, NULL, THREADS},
        {"mark", 1, NULL, MARK},     {"repo", 1, NULL, REPO},   {"host", 1, NULL, HOST},
        {"host2", 1, NULL, HOST2},   {"pki", 1, NULL, PKI},     {"client", 1, NULL, CLIENT},
        {"chase", 1, NULL, CHASE},   {"io-ms", 1, NULL, IO},    {0}};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case STANZA:
            opt.stanza = optarg;
            break;
        case ACK:
            opt.ack = optarg;
            break;
        case COUNT:
            opt.count = strtoull(optarg, NULL, 10);
            break;
        case FIRST:
            opt.first = strtoull(optarg, NULL, 10);
            break;
        case BYTES:
            opt.bytes = strtoull(optarg, NULL, 10);
            break;
        case THREADS:
            opt.threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case MARK:
            opt.mark = optarg;
            break;
        case REPO:
            opt.repo = optarg;
            break;
        case HOST:
            opt.host = optarg;
            break;
        case HOST2:
            opt.host2 = optarg;
            break;
        case PKI:
            opt.pki = optarg;
            break;
        case CLIENT:
            opt.client = optarg;
            break;
        case CHASE:
            opt.chase = optarg;
            break;
        case IO:
            opt.io_ms = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            exit(2);
        }
    }
    if (!opt.stanza || !opt.ack || !opt.repo == !opt.host || (opt.host && !(opt.pki && opt.client)))
        exit(2);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    struct sl_err err = {0};
    ack_fd = open(opt.ack, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int rc = ack_fd < 0 ? SL_ERR_OPEN : 0;
    if (!rc)
        rc = opt.repo ? open_embedded(&clients[0], &err) : open_remote(opt.host, &clients[0], &err);
    if (!rc && opt.host2) {
        sides = 2;
        rc = open_remote(opt.host2, &clients[1], &err);
    }
    if (rc) {
        fprintf(stderr, "archive_load: %s\n", err.msg);
        return 3;
    }
    pthread_t threads[64];
    unsigned count = opt.threads * sides;
    if (count > 64)
        return 2;
    for (unsigned i = 0; i < count; i++)
        if (sl_thread_start(&threads[i], "load", work, &clients[i % sides], &err))
            abort();
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("stored %llu, failed %llu\n", (unsigned long long)stored, (unsigned long long)failed);
    return failed ? 3 : 0;
}
