/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libibverbs (and mlx5dv, where it is) as tables of functions, opened at run time: one binary
 * starts with and without RDMA. Tests fill the tables with fakes.
 *
 * Call as (ibv->ibv_reg_mr)(…): some names are macros too. Calls that libibverbs itself makes
 * through the context (ibv_poll_cq, ibv_post_send, ibv_post_recv, ibv_post_srq_recv,
 * ibv_req_notify_cq; and ibv_alloc_td, ibv_alloc_parent_domain, ibv_create_cq_ex) are inline
 * functions of <infiniband/verbs.h> and need no entry; a fake fills ibv_context.ops and
 * verbs_context.
 */
#ifndef SL_VERBS_IBV_DL_H
#define SL_VERBS_IBV_DL_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* X(return type, name, arguments), O(…) for what an old library may lack. */
#define SL_IBV_FUNCTIONS(X, O)                                                                     \
    X(struct ibv_device **, ibv_get_device_list, (int *))                                          \
    X(void, ibv_free_device_list, (struct ibv_device **))                                          \
    X(const char *, ibv_get_device_name, (struct ibv_device *))                                    \
    X(struct ibv_context *, ibv_open_device, (struct ibv_device *))                                \
    X(int, ibv_close_device, (struct ibv_context *))                                               \
    X(int, ibv_query_device, (struct ibv_context *, struct ibv_device_attr *))                     \
    X(int, ibv_query_port, (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))        \
    X(int, ibv_query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *))                   \
    X(int, ibv_query_pkey, (struct ibv_context *, uint8_t, int, __be16 *))                         \
    O(int, _ibv_query_gid_ex,                                                                      \
      (struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t))        \
    X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *))                                       \
    X(int, ibv_dealloc_pd, (struct ibv_pd *))                                                      \
    X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int))                         \
    O(struct ibv_mr *, ibv_reg_mr_iova2, (struct ibv_pd *, void *, size_t, uint64_t, unsigned))    \
    O(struct ibv_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int)) \
    X(int, ibv_dereg_mr, (struct ibv_mr *))                                                        \
    X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *))                  \
    X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *))                                  \
    X(struct ibv_cq *, ibv_create_cq,                                                              \
      (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                         \
    X(int, ibv_destroy_cq, (struct ibv_cq *))                                                      \
    O(int, ibv_resize_cq, (struct ibv_cq *, int))                                                  \
    X(int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **))               \
    X(void, ibv_ack_cq_events, (struct ibv_cq *, unsigned))                                        \
    X(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *))             \
    X(int, ibv_destroy_srq, (struct ibv_srq *))                                                    \
    X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *))                \
    X(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))                            \
    X(int, ibv_query_qp, (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *))  \
    O(int, ibv_query_ece, (struct ibv_qp *, struct ibv_ece *))                                     \
    O(int, ibv_set_ece, (struct ibv_qp *, struct ibv_ece *))                                       \
    X(int, ibv_destroy_qp, (struct ibv_qp *))                                                      \
    X(int, ibv_get_async_event, (struct ibv_context *, struct ibv_async_event *))                  \
    X(void, ibv_ack_async_event, (struct ibv_async_event *))                                       \
    X(int, ibv_fork_init, (void))                                                                  \
    X(const char *, ibv_wc_status_str, (enum ibv_wc_status))                                       \
    X(const char *, ibv_event_type_str, (enum ibv_event_type))                                     \
    X(const char *, ibv_port_state_str, (enum ibv_port_state))

/* The beginning of struct mlx5dv_context, as far as we ask (comp_mask) and it has been since
 * rdma-core 35; a test compares it with <infiniband/mlx5dv.h>, which may lack where libibverbs' own
 * headers are. */
#define SL_MLX5DV_MASK_NUM_LAG_PORTS (UINT64_C(1) << 9)
struct sl_mlx5dv_context {
    uint8_t version;
    uint64_t flags, comp_mask;
    uint32_t others[11];
    uint64_t max_clock_info_update_nsec;
    uint32_t flow_action_flags, dc_odp_caps;
    void *hca_core_clock;
    uint8_t num_lag_ports;
    uint64_t later[32]; /* not asked for, so not written */
};

/* Of libmlx5: the UDP source port and the port of a bond that a QP uses. */
#define SL_MLX5DV_FUNCTIONS(X, O)                                                                  \
    X(bool, mlx5dv_is_supported, (struct ibv_device *))                                            \
    O(int, mlx5dv_query_device, (struct ibv_context *, struct sl_mlx5dv_context *))                \
    O(int, mlx5dv_query_qp_lag_port, (struct ibv_qp *, uint8_t *, uint8_t *))                      \
    O(int, mlx5dv_modify_qp_udp_sport, (struct ibv_qp *, uint16_t))                                \
    O(int, mlx5dv_modify_qp_lag_port, (struct ibv_qp *, uint8_t))

#define SL_DL_POINTER(type, name, args) type(*name) args;

struct sl_ibv {
    SL_IBV_FUNCTIONS(SL_DL_POINTER, SL_DL_POINTER)
};

struct sl_mlx5dv {
    SL_MLX5DV_FUNCTIONS(SL_DL_POINTER, SL_DL_POINTER)
};

/* The tables of this process; opened once, then shared and read-only. *out stays NULL on failure.
 * -ENOTSUP: libibverbs is not installed; the text says what to install. */
int sl_ibv_get(const struct sl_ibv **out);

/* NULL where libmlx5 is not installed. */
const struct sl_mlx5dv *sl_mlx5dv_get(void);

/* For tests: from now on sl_ibv_get() and sl_mlx5dv_get() give these. */
void sl_ibv_replace(const struct sl_ibv *ibv, const struct sl_mlx5dv *mlx5dv);

#endif
