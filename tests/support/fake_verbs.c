/* The fake device; see the header. This part: the device itself, and what tests call. */
#include "tests/support/fake_verbs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_verbs fake_verbs;
struct fake_all fake = {.context.async_fd = -1};

static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static struct ibv_device device = {.name = "fake0", .dev_name = "uverbs0"};
static struct sl_verbs_ops table;

static void lock_init(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&fake.lock, &attr);
}

void fake_leave(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&fake.lock);
}

void fake_violation(const char *what)
{
    if (fake_verbs.violations++ == 0)
        snprintf(fake_verbs.violation, sizeof fake_verbs.violation, "%s", what);
}

void *fake_object(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    fake.live++;
    return memory;
}

void fake_object_free(void *memory)
{
    fake.live--;
    free(memory);
}

void fake_signal(int fd)
{
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0)
        abort();
}

void fake_consume(int fd)
{
    uint64_t one;
    if (read(fd, &one, sizeof one) < 0)
        abort();
}

/* --- asynchronous events --------------------------------------------------------------------- */

void fake_async_add(struct ibv_async_event event)
{
    if (fake.async_count == ASYNC_MAX)
        abort();
    fake.async_events[(fake.async_first + fake.async_count++) % ASYNC_MAX] = event;
    fake_signal(fake.context.async_fd);
}

static int get_async_event(struct ibv_context *of, struct ibv_async_event *event)
{
    FAKE_LOCKED;
    if (fake.async_count == 0)
        return errno = EAGAIN, -1;
    fake_consume(of->async_fd);
    *event = fake.async_events[fake.async_first];
    fake.async_first = (fake.async_first + 1) % ASYNC_MAX;
    fake.async_count--;
    fake.async_unacked++;
    return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
    FAKE_LOCKED;
    (void)event;
    fake.async_unacked--;
}

/* --- the device ------------------------------------------------------------------------------ */

static struct ibv_context **get_devices(int *ret_count)
{
    struct ibv_context **list = calloc(2, sizeof *list);
    FAKE_FAIL("get_devices", (free(list), NULL));
    if (list && !fake_verbs.absent)
        list[0] = &fake.context;
    *ret_count = fake_verbs.absent ? 0 : 1;
    return list;
}

static void free_devices(struct ibv_context **list)
{
    free(list);
}

static int fork_init(void)
{
    FAKE_FAIL("fork_init", errno);
    return 0;
}

static int query_device(struct ibv_context *of, struct ibv_device_attr *attr)
{
    (void)of;
    FAKE_FAIL("query_device", errno);
    *attr = fake_verbs.device;
    return 0;
}

static int query_port(struct ibv_context *of, uint8_t port, struct ibv_port_attr *attr)
{
    (void)of;
    FAKE_FAIL("query_port", errno);
    if (port != 1)
        return EINVAL;
    *attr = fake_verbs.port;
    return 0;
}

static int query_gid_ex(struct ibv_context *of, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags)
{
    (void)of, (void)flags;
    if (port != 1 || index > 1)
        return ENODATA;
    *entry = (struct ibv_gid_entry){.gid_index = index,
                                    .port_num = port,
                                    .gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
                                    .ndev_ifindex = 1}; /* lo */
    return 0;
}

static void own_fill(struct sl_verbs_ops *ops)
{
    ops->get_devices = get_devices;
    ops->free_devices = free_devices;
    ops->fork_init = fork_init;
    ops->query_device = query_device;
    ops->query_port = query_port;
    ops->query_gid_ex = query_gid_ex;
    ops->get_async_event = get_async_event;
    ops->ack_async_event = ack_async_event;
}

/* --- for the tests --------------------------------------------------------------------------- */

void fake_verbs_install(void)
{
    pthread_once(&lock_once, lock_init);
    FAKE_LOCKED;
    fake_verbs = (struct fake_verbs){
        .transport = IBV_TRANSPORT_IB,
        .device = {.max_qp_wr = 1024,
                   .max_cqe = 4096,
                   .max_qp_rd_atom = 128,
                   .max_qp_init_rd_atom = 128,
                   .phys_port_cnt = 1},
        .port = {.state = IBV_PORT_ACTIVE,
                 .active_mtu = IBV_MTU_4096,
                 .max_msg_sz = 1u << 31,
                 .gid_tbl_len = 16,
                 .link_layer = IBV_LINK_LAYER_ETHERNET},
    };
    device.transport_type = IBV_TRANSPORT_IB;
    if (fake.context.async_fd >= 0)
        close(fake.context.async_fd);
    fake.context.async_fd = eventfd(0, EFD_SEMAPHORE);
    fake.async_first = fake.async_count = fake.async_unacked = 0;
    fake.executed = fake.posts = 0;
    fake.next_port = 40000;
    fake.context.device = &device;
    own_fill(&table);
    fake_queues_fill(&table);
    fake_cm_fill(&table);
    sl_verbs = &table;
}

void fake_verbs_iwarp(void)
{
    FAKE_LOCKED;
    device.transport_type = fake_verbs.transport = IBV_TRANSPORT_IWARP;
}

void fake_verbs_count_from_here(void)
{
    FAKE_LOCKED;
    fake.executed = fake.posts = 0;
}

size_t fake_verbs_live(void)
{
    FAKE_LOCKED;
    return fake.live;
}

size_t fake_verbs_run(size_t max, bool reverse)
{
    FAKE_LOCKED;
    size_t done = 0;
    while (done < max) {
        struct fake_qp *chosen = NULL;
        for (struct fake_qp *qp = fake.qps; qp; qp = qp->next)
            if (qp->send_count && !(reverse && chosen))
                chosen = qp;
        if (!chosen)
            break;
        fake_execute(chosen);
        done++;
    }
    return done;
}

void fake_verbs_device_fatal(void)
{
    FAKE_LOCKED;
    for (struct fake_qp *qp = fake.qps; qp; qp = qp->next)
        fake_fall(qp);
    fake_async_add((struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
}

void fake_verbs_remove(void)
{
    FAKE_LOCKED;
    for (struct fake_id *id = fake.ids; id; id = id->next)
        fake_tell(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
}

void fake_verbs_port(bool up)
{
    FAKE_LOCKED;
    fake_async_add((struct ibv_async_event){
        .event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, .element.port_num = 1});
}

void fake_verbs_overrun(void)
{
    FAKE_LOCKED;
    fake_async_add(
        (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &fake.cqs->cq});
}

bool fake_verbs_forge(char to, const void *bytes, uint32_t count)
{
    FAKE_LOCKED;
    for (struct fake_qp *qp = fake.qps; qp; qp = qp->next)
        if (qp->connected && qp->id->connector == (to == 'c'))
            return fake_deliver(qp, bytes, count) == IBV_WC_SUCCESS;
    return false;
}

void fake_verbs_stray_completion(uint64_t wr_id)
{
    FAKE_LOCKED;
    fake_complete(&fake.cqs->cq, (struct ibv_wc){.wr_id = wr_id, .opcode = IBV_WC_RDMA_READ}, NULL);
}
