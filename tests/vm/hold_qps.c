/* SPDX-License-Identifier: Apache-2.0 */
/* Makes so many queue pairs on a device, connects each to itself up to ready to send, says "ready",
 * and holds them until it is ended: hold_qps DEVICE COUNT. */
#include <infiniband/verbs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what, int i, int err)
{
    fprintf(stderr, "hold_qps: %s of queue pair %d: %s\n", what, i, strerror(err));
    return 1;
}

static struct ibv_context *open_device(const char *name)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;

    for (int i = 0; list != NULL && i < count && context == NULL; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    return context;
}

static int connect_to_itself(struct ibv_context *context, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int err = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    if (err != 0)
        return err;
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1, .sgid_index = 0}}};
    if (ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) != 0)
        return errno;
    err = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (err != 0)
        return err;
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int main(int argc, char **argv)
{
    struct ibv_context *context = argc == 3 ? open_device(argv[1]) : NULL;
    struct ibv_pd *pd = context != NULL ? ibv_alloc_pd(context) : NULL;
    struct ibv_cq *cq = context != NULL ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};

    if (pd == NULL || cq == NULL)
        return fail("what comes before", 0, errno);
    for (int i = 0; i < atoi(argv[2]); i++) {
        struct ibv_qp *qp = ibv_create_qp(pd, &init);
        int err = qp == NULL ? errno : connect_to_itself(context, qp);

        if (err != 0)
            return fail("making or connecting", i, err);
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
