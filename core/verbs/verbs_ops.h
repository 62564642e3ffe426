/* The calls of libibverbs and librdmacm that Sluice uses, as one table of pointers.
 *
 * It exists so that unit tests can put a fake device in the place of the real one
 * (tests/support/fake_verbs.h): many verbs are inline functions or macros, which a linker cannot
 * replace. Each member behaves as its name's manual page says, including its own way to report
 * errors: rdma_* and ibv_req_notify_cq & co. return -1 or an errno value, ibv_create_* NULL.
 * The only header of core that includes <infiniband/…> and <rdma/…>.
 */
#ifndef SL_VERBS_OPS_H
#define SL_VERBS_OPS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

struct sl_verbs_ops {
    /* librdmacm: 0, or -1 with errno */
    struct rdma_event_channel *(*create_event_channel)(void);
    void (*destroy_event_channel)(struct rdma_event_channel *channel);
    int (*create_id)(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *context,
                     enum rdma_port_space space);
    int (*destroy_id)(struct rdma_cm_id *id);
    int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *address);
    int (*resolve_addr)(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                        int timeout_ms);
    int (*resolve_route)(struct rdma_cm_id *id, int timeout_ms);
    int (*create_qp)(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    void (*destroy_qp)(struct rdma_cm_id *id);
    int (*connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
    int (*listen)(struct rdma_cm_id *id, int backlog);
    int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
    int (*reject)(struct rdma_cm_id *id, const void *private_data, uint8_t bytes);
    int (*disconnect)(struct rdma_cm_id *id);
    int (*get_cm_event)(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event);
    int (*ack_cm_event)(struct rdma_cm_event *event);
    int (*set_option)(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes);
    int (*migrate_id)(struct rdma_cm_id *id, struct rdma_event_channel *channel);
    struct ibv_context **(*get_devices)(int *ret_count);
    void (*free_devices)(struct ibv_context **list);
    /* libibverbs: pointers are NULL with errno; ints are 0 or an errno value, unless noted */
    int (*fork_init)(void);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
    int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags);
    int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *start, size_t bytes, unsigned access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *user,
                                struct ibv_comp_channel *channel, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    int (*poll_cq)(struct ibv_cq *cq, int max, struct ibv_wc *wc); /* a count, or negative */
    int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq,
                        void **ret_user); /* 0, or -1 with errno */
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned count);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
    int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);
    int (*get_async_event)(struct ibv_context *context,
                           struct ibv_async_event *event); /* 0, or -1 with errno */
    void (*ack_async_event)(struct ibv_async_event *event);
};

extern const struct sl_verbs_ops sl_verbs_real;

/* The table in use: &sl_verbs_real unless a test replaced it before anything was made. */
extern const struct sl_verbs_ops *sl_verbs;

#endif
