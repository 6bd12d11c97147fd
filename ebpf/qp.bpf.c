/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * The life of queue pairs: made, connected to whom, in which state, gone. Each function of the
 * kernel is watched in two ways, of which user space loads the one that the kernel has: fexit has
 * arguments and result together; kprobes have them one after another.
 */
#include "ebpf/program.h"

#define IB_QP_STATE (1 << 0)
#define IB_QP_AV (1 << 7)
#define IB_QP_DEST_QPN (1 << 20)
#define ERRORS_FROM (-4095UL) /* a pointer from there on is an error */

COUNTS(counts, SL_BPF_QP_COUNTS);

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SL_BPF_QPS);
    __type(key, __u64); /* where its struct ib_qp is */
    __type(value, struct sl_bpf_qp);
} qps SEC(".maps");

/* Between entry and return of a function, by thread. */
struct call {
    const struct ib_qp *qp;
    const struct ib_qp_attr *attr;
    __u64 mask;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, __u64);
    __type(value, struct call);
} calls SEC(".maps");

static __always_inline void fill(struct sl_bpf_qp *value, const struct ib_qp *qp)
{
    struct ib_device *device = BPF_CORE_READ(qp, device);

    BPF_CORE_READ_STR_INTO(&value->device, device, name);
    value->qpn = BPF_CORE_READ(qp, qp_num);
    value->type = BPF_CORE_READ(qp, qp_type);
    value->pid = bpf_get_current_pid_tgid() >> 32;
    value->changed_ns = bpf_ktime_get_ns();
}

static __always_inline int created(const struct ib_qp *qp)
{
    struct sl_bpf_qp fresh = {};
    __u64 key = (__u64)qp;

    if (qp == NULL || key >= ERRORS_FROM)
        return 0;
    fill(&fresh, qp);
    fresh.created_ns = fresh.changed_ns;
    bpf_map_update_elem(&qps, &key, &fresh, BPF_ANY);
    COUNT(counts, SL_BPF_QP_CREATED);
    return 0;
}

static __always_inline int modified(const struct ib_qp *qp, const struct ib_qp_attr *attr,
                                    __u32 mask)
{
    struct sl_bpf_qp *value, fresh = {};
    __u64 key = (__u64)qp;

    value = bpf_map_lookup_elem(&qps, &key);
    if (value == NULL) { /* it was there before us */
        fill(&fresh, qp);
        bpf_map_update_elem(&qps, &key, &fresh, BPF_NOEXIST);
        value = bpf_map_lookup_elem(&qps, &key);
        if (value == NULL)
            return 0;
    }
    if (mask & IB_QP_STATE)
        value->state = BPF_CORE_READ(attr, qp_state);
    if (mask & IB_QP_DEST_QPN)
        value->peer_qpn = BPF_CORE_READ(attr, dest_qp_num);
    if (mask & IB_QP_AV) {
        BPF_CORE_READ_INTO(&value->peer_gid, attr, ah_attr.grh.dgid.raw);
        value->flow_label = BPF_CORE_READ(attr, ah_attr.grh.flow_label);
    }
    value->changed_ns = bpf_ktime_get_ns();
    COUNT(counts, SL_BPF_QP_MODIFIED);
    return 0;
}

static __always_inline int destroyed(__u64 key)
{
    bpf_map_delete_elem(&qps, &key);
    COUNT(counts, SL_BPF_QP_DESTROYED);
    return 0;
}

/* ---- fexit ---- */

SEC("fexit/ib_create_qp_user")
int BPF_PROG(create_exit, struct ib_device *device, struct ib_pd *pd, struct ib_qp_init_attr *attr,
             struct ib_udata *udata, struct ib_uqp_object *object, const char *caller,
             struct ib_qp *result)
{
    return created(result);
}

SEC("fexit/ib_modify_qp_with_udata")
int BPF_PROG(modify_exit, struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
             struct ib_udata *udata, int result)
{
    return result == 0 ? modified(qp, attr, mask) : 0;
}

SEC("fexit/ib_destroy_qp_user")
int BPF_PROG(destroy_exit, struct ib_qp *qp, struct ib_udata *udata, int result)
{
    return result == 0 ? destroyed((__u64)qp) : 0;
}

/* ---- kprobes ---- */

static __always_inline void enter(const struct ib_qp *qp, const struct ib_qp_attr *attr, __u32 mask)
{
    __u64 id = bpf_get_current_pid_tgid();
    struct call call = {.qp = qp, .attr = attr, .mask = mask};

    bpf_map_update_elem(&calls, &id, &call, BPF_ANY);
}

static __always_inline bool leave(struct call *out)
{
    __u64 id = bpf_get_current_pid_tgid();
    struct call *call = bpf_map_lookup_elem(&calls, &id);

    if (call == NULL)
        return false;
    *out = *call;
    bpf_map_delete_elem(&calls, &id);
    return true;
}

SEC("kretprobe/ib_create_qp_user")
int BPF_KRETPROBE(create_return, struct ib_qp *result)
{
    return created(result);
}

SEC("kprobe/ib_modify_qp_with_udata")
int BPF_KPROBE(modify_call, struct ib_qp *qp, struct ib_qp_attr *attr, int mask)
{
    enter(qp, attr, mask);
    return 0;
}

SEC("kretprobe/ib_modify_qp_with_udata")
int BPF_KRETPROBE(modify_return, int result)
{
    struct call call;

    return leave(&call) && result == 0 ? modified(call.qp, call.attr, call.mask) : 0;
}

SEC("kprobe/ib_destroy_qp_user")
int BPF_KPROBE(destroy_call, struct ib_qp *qp)
{
    enter(qp, NULL, 0);
    return 0;
}

SEC("kretprobe/ib_destroy_qp_user")
int BPF_KRETPROBE(destroy_return, int result)
{
    struct call call;

    return leave(&call) && result == 0 ? destroyed((__u64)call.qp) : 0;
}
