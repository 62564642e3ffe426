/* Devices: one object per ibv_context of the process, shared by all rails and lanes on it.
 *
 * It exists for the asynchronous events. A context has one event fd, but many lanes with many
 * owners: each lane polls that fd, whoever comes first takes the events, and the lanes concerned
 * are told through their own eventfd. It is not where lanes or rails are kept alive.
 */
#include "core/verbs/verbs_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_device *registry;

int sl_verbs_err(struct sl_err *err, int sys, const char *what)
{
    if (sys != ENOMEM)
        return sl_err_sys(err, SL_ERR_DEVICE, sys, "%s", what);
    /* ENOMEM from verbs is rarely a lack of memory: pinned pages count against RLIMIT_MEMLOCK,
     * those of a queue too (rdma-core wiki; ibv_reg_mr(3)). */
    sl_err_set(err, SL_ERR_LIMIT, "%s: %s", what, strerror(sys));
    return sl_err_hint(err, "the limit of locked memory may be too low: set LimitMEMLOCK=infinity "
                            "in the systemd unit, or 'ulimit -l unlimited' in the shell");
}

int sl_verbs_fork_safe(struct sl_err *err)
{
    /* Kernels from 5.12 copy pinned pages at fork and need nothing (IBV_FORK_UNNEEDED). */
    int rc = sl_verbs->fork_init();
    if (rc != 0)
        return sl_err_sys(err, SL_ERR_DEVICE, rc, "could not make RDMA memory safe for fork");
    return 0;
}

static int device_new(struct ibv_context *context, struct verbs_device **ret_device,
                      struct sl_err *err)
{
    struct verbs_device *device = sl_calloc(1, sizeof *device);
    if (!device)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_verbs->query_device(context, &device->attr);
    if (rc != 0) {
        sl_free(device);
        return sl_verbs_err(err, rc, "could not query the RDMA device");
    }
    int flags = fcntl(context->async_fd, F_GETFL);
    if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        sl_free(device);
        return sl_err_sys(err, SL_ERR_DEVICE, errno, "could not watch the RDMA device");
    }
    device->context = context;
    device->iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
    pthread_mutex_init(&device->lock, NULL);
    *ret_device = device;
    return 0;
}

int sl_verbs_device_get(struct ibv_context *context, struct verbs_device **ret_device,
                        struct sl_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&registry_lock);
    struct verbs_device *device = registry;
    while (device && device->context != context)
        device = device->next;
    if (!device && (rc = device_new(context, &device, err)) == 0) {
        device->next = registry;
        registry = device;
    }
    if (rc == 0) {
        device->refs++;
        *ret_device = device;
    }
    pthread_mutex_unlock(&registry_lock);
    return rc;
}

void sl_verbs_device_put(struct verbs_device *device)
{
    pthread_mutex_lock(&registry_lock);
    bool last = --device->refs == 0;
    if (last) {
        struct verbs_device **at = &registry;
        while (*at != device)
            at = &(*at)->next;
        *at = device->next;
    }
    pthread_mutex_unlock(&registry_lock);
    if (last) {
        pthread_mutex_destroy(&device->lock);
        sl_free(device);
    }
}

int sl_verbs_device_add(struct verbs_device *device, struct verbs_lane *lane)
{
    pthread_mutex_lock(&device->lock);
    bool fatal = device->fatal;
    if (!fatal) {
        lane->device_next = device->lanes;
        device->lanes = lane;
    }
    pthread_mutex_unlock(&device->lock);
    return fatal ? SL_ERR_DEVICE : 0;
}

void sl_verbs_device_remove(struct verbs_device *device, struct verbs_lane *lane)
{
    pthread_mutex_lock(&device->lock);
    struct verbs_lane **at = &device->lanes;
    while (*at && *at != lane)
        at = &(*at)->device_next;
    if (*at)
        *at = lane->device_next;
    pthread_mutex_unlock(&device->lock);
}

/* The lane is looked up by comparing pointers: it may be gone by the time its event is read. */
static void alarm_one(struct verbs_device *device, const void *who, const char *reason)
{
    for (struct verbs_lane *lane = device->lanes; lane; lane = lane->device_next)
        if (lane == who)
            sl_verbs_lane_alarm(lane, SL_ERR_DEVICE, reason);
}

static void alarm_all(struct verbs_device *device, const char *reason)
{
    for (struct verbs_lane *lane = device->lanes; lane; lane = lane->device_next)
        sl_verbs_lane_alarm(lane, SL_ERR_DEVICE, reason);
}

static void handle_event(struct verbs_device *device, const struct ibv_async_event *event)
{
    const char *name = device->context->device->name;
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
        alarm_one(device, event->element.qp->qp_context, "fatal error of the queue pair");
        break;
    case IBV_EVENT_QP_REQ_ERR:
        alarm_one(device, event->element.qp->qp_context, "invalid request by the peer");
        break;
    case IBV_EVENT_QP_ACCESS_ERR:
        alarm_one(device, event->element.qp->qp_context, "access violation by the peer");
        break;
    case IBV_EVENT_CQ_ERR:
        alarm_one(device, event->element.cq->cq_context, "completion queue overrun");
        break;
    case IBV_EVENT_DEVICE_FATAL:
        /* After it the fd must not be read again: some providers repeat it for ever. */
        sl_log(SL_LOG_WARN, "verbs", "RDMA device \"%s\" failed", name);
        device->fatal = true;
        alarm_all(device, "the RDMA device failed");
        break;
    case IBV_EVENT_PORT_ERR:
        /* Not an end: a queue pair retries for seconds, and the caller has its deadlines. */
        sl_log(SL_LOG_WARN, "verbs", "port %d of RDMA device \"%s\" went down",
               event->element.port_num, name);
        break;
    case IBV_EVENT_PORT_ACTIVE:
        sl_log(SL_LOG_INFO, "verbs", "port %d of RDMA device \"%s\" is active",
               event->element.port_num, name);
        break;
    default:
        sl_log(SL_LOG_DEBUG, "verbs", "RDMA device \"%s\": %s", name,
               ibv_event_type_str(event->event_type));
        break;
    }
}

void sl_verbs_device_events(struct verbs_device *device)
{
    struct ibv_async_event event;
    pthread_mutex_lock(&device->lock);
    while (!device->fatal && sl_verbs->get_async_event(device->context, &event) == 0) {
        handle_event(device, &event);
        sl_verbs->ack_async_event(&event);
    }
    pthread_mutex_unlock(&device->lock);
}
