/* What this host has: devices, ports, addresses as text; and whether memory may be locked. For
 * `sluice check`, the log and hints; nothing here decides which device is used.
 */
#include "core/verbs/verbs_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define GIDS_MAX 64 /* of a port, looked at: the table holds 1024 with rxe, mostly empty */

const char *sl_verbs_link_name(const struct verbs_device *device, const struct ibv_port_attr *port)
{
    if (device->iwarp)
        return "iWARP";
    return port->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
}

static const char *gid_type_name(const struct verbs_device *device, uint32_t type)
{
    if (device->iwarp)
        return "";
    switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
        return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
        return "RoCE v2";
    case IBV_GID_TYPE_IB:
        return "IB";
    default:
        return "";
    }
}

const char *sl_verbs_gid_name(const struct verbs_device *device, uint8_t port, uint32_t index)
{
    struct ibv_gid_entry entry;
    if (device->iwarp || sl_verbs->query_gid_ex(device->context, port, index, &entry, 0) != 0)
        return "";
    return gid_type_name(device, entry.gid_type);
}

struct text {
    char *at, *end;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *text, const char *fmt, ...)
{
    va_list args;
    size_t room = (size_t)(text->end - text->at);
    va_start(args, fmt);
    int n = vsnprintf(text->at, room, fmt, args);
    va_end(args);
    if (n > 0)
        text->at += (size_t)n < room ? (size_t)n : room ? room - 1 : 0;
}

static bool is_of_interface(const struct ifaddrs *a, const struct ibv_gid_entry *gid,
                            const struct ifaddrs *all)
{
    if (gid->ndev_ifindex)
        return if_nametoindex(a->ifa_name) == gid->ndev_ifindex;
    /* iWARP before Linux 6.9 does not say; its GID begins with the interface's MAC address. */
    for (const struct ifaddrs *l = all; l; l = l->ifa_next) {
        if (!l->ifa_addr || l->ifa_addr->sa_family != AF_PACKET || strcmp(l->ifa_name, a->ifa_name))
            continue;
        struct sockaddr_ll link;
        memcpy(&link, l->ifa_addr, sizeof link);
        return link.sll_halen == 6 && !memcmp(link.sll_addr, gid->gid.raw, 6);
    }
    return false;
}

/* The IP addresses of the interface behind a port. */
static void add_addresses(struct text *text, const struct ibv_gid_entry *gid)
{
    struct ifaddrs *all;
    const char *before = " on ";
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        char host[INET6_ADDRSTRLEN];
        const void *raw;
        if (!a->ifa_addr || !is_of_interface(a, gid, all))
            continue;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        if (a->ifa_addr->sa_family == AF_INET) {
            memcpy(&v4, a->ifa_addr, sizeof v4);
            raw = &v4.sin_addr;
        } else if (a->ifa_addr->sa_family == AF_INET6) {
            memcpy(&v6, a->ifa_addr, sizeof v6);
            raw = &v6.sin6_addr;
            if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
                continue;
        } else {
            continue;
        }
        if (inet_ntop(a->ifa_addr->sa_family, raw, host, sizeof host))
            add(text, "%s%s", before, host);
        before = " ";
    }
    freeifaddrs(all);
}

/* Of several entries the last valid one counts: the first is often RoCE v1 or link-local. */
static bool find_gid(const struct verbs_device *device, uint8_t port, int count,
                     struct ibv_gid_entry *ret_gid)
{
    bool found = false;
    struct ibv_gid_entry entry;
    for (int i = 0; i < count && i < GIDS_MAX; i++)
        if (sl_verbs->query_gid_ex(device->context, port, (uint32_t)i, &entry, 0) == 0) {
            *ret_gid = entry;
            found = true;
        }
    return found;
}

static void add_port(struct text *text, const struct verbs_device *device, uint8_t port)
{
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid;
    if (sl_verbs->query_port(device->context, port, &attr) != 0)
        return;
    add(text, "%s/%u %s", device->context->device->name, port, sl_verbs_link_name(device, &attr));
    bool known = find_gid(device, port, attr.gid_tbl_len, &gid);
    if (known && attr.link_layer == IBV_LINK_LAYER_ETHERNET && !device->iwarp)
        add(text, " %s", gid_type_name(device, gid.gid_type));
    if (!device->iwarp)
        add(text, " MTU %d", 128 << attr.active_mtu);
    add(text, " %s", attr.state == IBV_PORT_ACTIVE ? "active" : "down");
    if (known)
        add_addresses(text, &gid);
}

int sl_verbs_describe(char *text, size_t bytes, struct sl_err *err)
{
    int count = 0;
    struct text out = {text, text + bytes};
    int rc = sl_verbs_fork_safe(err);
    if (rc != 0)
        return rc;
    struct ibv_context **list = sl_verbs->get_devices(&count);
    if (!list || count == 0) {
        if (list)
            sl_verbs->free_devices(list);
        sl_err_set(err, SL_ERR_UNSUPPORTED, "this host has no RDMA device");
        return sl_err_hint(err, "'rdma link show' lists devices; see also /dev/infiniband");
    }
    if (bytes)
        text[0] = '\0';
    for (int i = 0; i < count; i++) {
        struct verbs_device *device;
        if (sl_verbs_device_get(list[i], &device, NULL) != 0)
            continue;
        for (uint8_t port = 1; port <= device->attr.phys_port_cnt; port++) {
            if (out.at != text)
                add(&out, ", ");
            add_port(&out, device, port);
        }
        sl_verbs_device_put(device);
    }
    sl_verbs->free_devices(list);
    return 0;
}

/* --- locked memory --------------------------------------------------------------------------- */

/* A field of /proc/self/status; 0 if it is not there. */
static uint64_t status_field(const char *name, int base)
{
    char line[256];
    uint64_t value = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) {
            value = strtoull(line + strlen(name), NULL, base);
            break;
        }
    fclose(file);
    return value;
}

int sl_verbs_memlock(size_t bytes, struct sl_err *err)
{
    struct rlimit limit;
    const uint64_t cap_ipc_lock = 14; /* linux/capability.h: exempts from the limit */
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not read RLIMIT_MEMLOCK");
    if (limit.rlim_cur == RLIM_INFINITY || status_field("CapEff:", 16) >> cap_ipc_lock & 1)
        return 0;
    /* ib_umem counts all pinned pages of the process together (drivers/infiniband/core/umem.c). */
    uint64_t needed = status_field("VmPin:", 10) * 1024 + bytes;
    if (needed <= limit.rlim_cur)
        return 0;
    uint64_t kib = (needed + 1023) / 1024;
    sl_err_set(err, SL_ERR_LIMIT,
               "RDMA needs %" PRIu64 " KiB of locked memory, but RLIMIT_MEMLOCK is %" PRIu64 " KiB",
               kib, (uint64_t)limit.rlim_cur / 1024);
    return sl_err_hint(err,
                       "set LimitMEMLOCK=infinity in the systemd unit, or 'ulimit -l %" PRIu64
                       "' (or unlimited) in the shell",
                       kib);
}
