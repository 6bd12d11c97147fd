/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to give a peer a key for some bytes and to take it back: memory windows, and
 * registering anew; beside a message of those bytes. And whether a key that was taken back is one
 * no more: docs/design/0039-keys-that-expire.md.
 *
 *   bench_keys WRITER OWNER [ROUNDS]     two RDMA devices that reach each other: rxe0 rxe1
 */
#include "verbs/ibv_dl.h"

#include "core/clock.h"
#include "core/err.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE ((size_t)64 << 20)
#define DEADLINE_NS (10 * SL_NS_PER_S)
#define PEERS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define BINDS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

struct end {
    struct ibv_context *context;
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    union ibv_gid gid;
    int gid_index;
    struct ibv_qp *qp;
    uint8_t *bytes;
    struct ibv_mr *mr;
};

static const struct sl_ibv *ibv;
static struct end writer, owner;
static struct ibv_qp *self; /* the owner's, connected to itself */

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_keys: %s failed: %s\n", what, strerror(errno));
    exit(1);
}

/* RoCE v2 over IPv4, where there is one. */
static void gid_choose(struct end *end)
{
    for (int i = 0; i < end->port.gid_tbl_len; i++) {
        union ibv_gid gid;

        if ((ibv->ibv_query_gid)(end->context, 1, i, &gid) != 0 || gid.global.interface_id == 0)
            continue;
        if (end->gid.global.interface_id != 0 && (gid.raw[10] != 0xff || gid.raw[11] != 0xff))
            continue;
        end->gid = gid;
        end->gid_index = i;
    }
}

static struct ibv_qp *qp_make(const struct end *end)
{
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = (ibv->ibv_create_qp)(end->pd, &init);

    check(qp != NULL, "ibv_create_qp");
    return qp;
}

static void qp_connect(const struct end *end, struct ibv_qp *qp, const struct end *to, uint32_t qpn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    check((ibv->ibv_modify_qp)(
              qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "to INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = end->port.active_mtu,
        .dest_qp_num = qpn,
        .max_dest_rd_atomic = 1,
        .ah_attr = {
            .dlid = to->port.lid,
            .port_num = 1,
            .is_global = 1,
            .grh = {.dgid = to->gid, .sgid_index = (uint8_t)end->gid_index, .hop_limit = 64}}};
    check((ibv->ibv_modify_qp)(qp, &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                   IBV_QP_MIN_RNR_TIMER) == 0,
          "to RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .max_rd_atomic = 1};
    check((ibv->ibv_modify_qp)(qp, &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "to RTS");
}

static void end_open(struct end *end, const char *name)
{
    int count = 0;
    struct ibv_device **list = ibv->ibv_get_device_list(&count);

    for (int i = 0; i < count; i++)
        if (strcmp(ibv->ibv_get_device_name(list[i]), name) == 0)
            end->context = ibv->ibv_open_device(list[i]);
    check(end->context != NULL, name);
    check((ibv->ibv_query_device)(end->context, &end->attr) == 0, "ibv_query_device");
    check((ibv->ibv_query_port)(end->context, 1, (struct _compat_ibv_port_attr *)&end->port) == 0,
          "ibv_query_port");
    gid_choose(end);
    end->pd = ibv->ibv_alloc_pd(end->context);
    end->cq = ibv->ibv_create_cq(end->context, 256, NULL, NULL, 0);
    end->bytes = aligned_alloc(4096, LARGE);
    check(end->pd != NULL && end->cq != NULL && end->bytes != NULL, "opening");
    memset(end->bytes, 1, LARGE);
    end->qp = qp_make(end);
}

/* The status of the next completion. */
static enum ibv_wc_status done(const struct end *end)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + DEADLINE_NS;
    struct ibv_wc wc;
    int n = 0;

    while (n == 0 && sl_now(&sl_clock_monotonic) < deadline_ns)
        n = ibv_poll_cq(end->cq, 1, &wc);
    check(n == 1, "waiting for a completion");
    return wc.status;
}

/* To nothing (len 0) names the region all the same: soft-RoCE's driver asks it for its key. */
static void bind1(struct ibv_mw *mw, size_t len)
{
    struct ibv_mw_bind bind = {
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {.mr = owner.mr,
                      .addr = (uintptr_t)owner.bytes,
                      .length = len,
                      .mw_access_flags = len != 0 ? IBV_ACCESS_REMOTE_WRITE : 0}};

    check(ibv_bind_mw(self, mw, &bind) == 0, "ibv_bind_mw");
    check(done(&owner) == IBV_WC_SUCCESS, "a bind of type 1");
}

static void bind2(struct ibv_mw *mw, size_t len)
{
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_BIND_MW,
              .send_flags = IBV_SEND_SIGNALED,
              .bind_mw = {.mw = mw,
                          .rkey = ibv_inc_rkey(mw->rkey),
                          .bind_info = {.mr = owner.mr,
                                        .addr = (uintptr_t)owner.bytes,
                                        .length = len,
                                        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};

    check(ibv_post_send(owner.qp, &wr, &bad) == 0, "posting a bind");
    check(done(&owner) == IBV_WC_SUCCESS, "a bind of type 2");
    mw->rkey = ibv_inc_rkey(mw->rkey);
}

static void invalidate(struct ibv_mw *mw)
{
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_LOCAL_INV,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .invalidate_rkey = mw->rkey};

    check(ibv_post_send(owner.qp, &wr, &bad) == 0, "posting an invalidation");
    check(done(&owner) == IBV_WC_SUCCESS, "an invalidation");
}

static enum ibv_wc_status put(size_t off, size_t len, uint32_t rkey)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)writer.bytes, .length = (uint32_t)len, .lkey = writer.mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_RDMA_WRITE,
              .send_flags = IBV_SEND_SIGNALED,
              .sg_list = &sge,
              .num_sge = 1,
              .wr.rdma = {.remote_addr = (uintptr_t)owner.bytes + off, .rkey = rkey}};

    check(ibv_post_send(writer.qp, &wr, &bad) == 0, "posting a write");
    return done(&writer);
}

/* ---- what is timed ---- */

static struct ibv_mw *window;
static size_t bytes;

static void do_bind1(void)
{
    bind1(window, bytes);
    bind1(window, 0);
}

static void do_bind2(void)
{
    bind2(window, bytes);
    invalidate(window);
}

static void do_reg(void)
{
    struct ibv_mr *mr = (ibv->ibv_reg_mr)(owner.pd, owner.bytes, bytes, PEERS);

    check(mr != NULL && (ibv->ibv_dereg_mr)(mr) == 0, "registering");
}

static int (*rereg)(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int);
static struct ibv_mr *again_mr;

/* Without remote write, and with it again: what a peer may do changes, the key may stay. */
static void do_rereg(void)
{
    for (unsigned i = 0; i < 2 && rereg != NULL; i++)
        if (rereg(again_mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                  i == 0 ? IBV_ACCESS_LOCAL_WRITE : PEERS) != 0)
            rereg = NULL;
}

static void do_write(void)
{
    check(put(0, bytes, owner.mr->rkey) == IBV_WC_SUCCESS, "a write");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void timed(const char *what, size_t len, unsigned rounds, void (*act)(void))
{
    double *us = calloc(rounds, sizeof(*us));

    check(us != NULL, "memory");
    bytes = len;
    act();
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t start = sl_now(&sl_clock_monotonic);

        act();
        us[i] = (double)(sl_now(&sl_clock_monotonic) - start) / 1e3;
    }
    qsort(us, rounds, sizeof(*us), by_value);
    printf("%-36s %9zu B  %10.1f us (%.1f-%.1f)\n", what, len, us[rounds / 2], us[0],
           us[rounds - 1]);
    free(us);
}

static void rereg_timed(size_t len, unsigned rounds)
{
    again_mr = (ibv->ibv_reg_mr)(owner.pd, owner.bytes, len, PEERS);
    check(again_mr != NULL, "ibv_reg_mr");
    do_rereg();
    if (rereg != NULL)
        timed("change the access, and back", len, rounds, do_rereg);
    else
        printf("%-36s %9zu B  not here: %s\n", "change the access, and back", len, strerror(errno));
    (ibv->ibv_dereg_mr)(again_mr);
}

/* What a queue pair that has failed takes to carry again. */
static void again(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

    check((ibv->ibv_modify_qp)(writer.qp, &attr, IBV_QP_STATE) == 0, "to RESET");
    check((ibv->ibv_modify_qp)(owner.qp, &attr, IBV_QP_STATE) == 0, "to RESET");
    qp_connect(&writer, writer.qp, &owner, owner.qp->qp_num);
    qp_connect(&owner, owner.qp, &writer, writer.qp->qp_num);
}

static void says(const char *what, enum ibv_wc_status status, bool wanted)
{
    printf("%-36s %s%s\n", what, ibv->ibv_wc_status_str(status),
           (status == IBV_WC_SUCCESS) == wanted ? "" : "  <- NOT AS IT SHOULD BE");
    if (status != IBV_WC_SUCCESS)
        again();
}

static void windows(enum ibv_mw_type type, unsigned rounds)
{
    bool is_1 = type == IBV_MW_TYPE_1;
    const char *name = is_1 ? "type 1" : "type 2";
    uint32_t old;

    window = ibv_alloc_mw(owner.pd, type);
    if (window == NULL) {
        printf("%s: not here: %s\n", name, strerror(errno));
        return;
    }
    printf("# windows of %s\n", name);
    timed(is_1 ? "bind, and bind to nothing" : "bind, and invalidate", 64 << 10, rounds,
          is_1 ? do_bind1 : do_bind2);
    timed(is_1 ? "bind, and bind to nothing" : "bind, and invalidate", 1 << 20, rounds,
          is_1 ? do_bind1 : do_bind2);
    (is_1 ? bind1 : bind2)(window, 4096);
    says("a write inside", put(0, 4096, window->rkey), true);
    old = window->rkey;
    says("a write past the end", put(4096, 1, old), false);
    if (!is_1)
        return; /* its queue pair has failed, and been made again */
    bind1(window, 0);
    says("a write by its key later", put(0, 4096, old), false);
    bind1(window, 4096);
    says("a write by that key when bound again", put(0, 4096, old), false);
    says("a write by the region's own key", put(0, 4096, owner.mr->rkey), false);
    bind1(window, 0);
    check(ibv_dealloc_mw(window) == 0, "ibv_dealloc_mw");
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 200;

    if (argc < 3 || rounds == 0 || sl_ibv_get(&ibv) != 0) {
        fprintf(stderr, "usage: bench_keys WRITER OWNER [ROUNDS]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    end_open(&writer, argv[1]);
    end_open(&owner, argv[2]);
    printf("# %s: %d windows; type 1 %s, 2A %s, 2B %s\n", argv[2], owner.attr.max_mw,
           (owner.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0 ? "yes" : "no",
           (owner.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A) != 0 ? "yes" : "no",
           (owner.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0 ? "yes" : "no");
    qp_connect(&writer, writer.qp, &owner, owner.qp->qp_num);
    qp_connect(&owner, owner.qp, &writer, writer.qp->qp_num);
    self = qp_make(&owner);
    qp_connect(&owner, self, &owner, self->qp_num);
    writer.mr = (ibv->ibv_reg_mr)(writer.pd, writer.bytes, LARGE, PEERS);
    owner.mr = (ibv->ibv_reg_mr)(owner.pd, owner.bytes, LARGE, PEERS);
    check(writer.mr != NULL && owner.mr != NULL, "ibv_reg_mr");
    timed("a write", 8, rounds, do_write);
    timed("a write", 64 << 10, rounds / 4 + 1, do_write);
    timed("a write", 1 << 20, rounds / 20 + 1, do_write);
    timed("register, and give back", 64 << 10, rounds / 4 + 1, do_reg);
    timed("register, and give back", 1 << 20, rounds / 4 + 1, do_reg);
    timed("register, and give back", LARGE, rounds / 20 + 1, do_reg);
    *(void **)&rereg = dlsym(dlopen("libibverbs.so.1", RTLD_NOW), "ibv_rereg_mr");
    rereg_timed(64 << 10, rounds / 4 + 1);
    rereg_timed(1 << 20, rounds / 4 + 1);
    rereg_timed(LARGE, rounds / 20 + 1);
    check((ibv->ibv_dereg_mr)(owner.mr) == 0, "ibv_dereg_mr");
    owner.mr = (ibv->ibv_reg_mr)(owner.pd, owner.bytes, LARGE, BINDS);
    check(owner.mr != NULL, "ibv_reg_mr for windows");
    windows(IBV_MW_TYPE_1, rounds);
    windows(IBV_MW_TYPE_2, rounds);
    return 0;
}
