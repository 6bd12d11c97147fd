/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all versions of NCCL's profiler interface: kinds of events and their
 * states. */
#ifndef SL_NCCL_ABI_PROFILER_H
#define SL_NCCL_ABI_PROFILER_H

#include "tools/nccl/abi.h"

/* Kinds, as a descriptor's type and as bits of the mask that init() returns. */
enum sl_nccl_profile_kind {
    SL_NCCL_PROFILE_GROUP = 1 << 0,
    SL_NCCL_PROFILE_COLL = 1 << 1,
    SL_NCCL_PROFILE_P2P = 1 << 2,
    SL_NCCL_PROFILE_PROXY_OP = 1 << 3,
    SL_NCCL_PROFILE_PROXY_STEP = 1 << 4,
    SL_NCCL_PROFILE_PROXY_CTRL = 1 << 5,
    SL_NCCL_PROFILE_KERNEL_CH = 1 << 6,
    SL_NCCL_PROFILE_NET_PLUGIN = 1 << 7,
    SL_NCCL_PROFILE_GROUP_API = 1 << 8, /* v5 and later */
    SL_NCCL_PROFILE_COLL_API = 1 << 9,
    SL_NCCL_PROFILE_P2P_API = 1 << 10,
    SL_NCCL_PROFILE_KERNEL_LAUNCH = 1 << 11,
    SL_NCCL_PROFILE_CE_COLL = 1 << 12, /* v6 and later: copy engines */
    SL_NCCL_PROFILE_CE_SYNC = 1 << 13,
    SL_NCCL_PROFILE_CE_BATCH = 1 << 14,
    SL_NCCL_PROFILE_KERNEL_PHASE = 1 << 15 /* v7: comes only with KERNEL_CH */
};

/* States. A step that is sent: GPU, PEER, WAIT, stop; one that is received: WAIT, FLUSH, GPU, stop.
 * PEER is recorded with every poll until the network takes the step. */
enum sl_nccl_profile_state {
    SL_NCCL_STATE_SEND_GPU_WAIT = 8, /* the GPU has not filled the buffer */
    SL_NCCL_STATE_SEND_WAIT = 9,     /* the network is at it */
    SL_NCCL_STATE_RECV_WAIT = 10,
    SL_NCCL_STATE_RECV_FLUSH_WAIT = 11,
    SL_NCCL_STATE_RECV_GPU_WAIT = 12, /* the GPU has not emptied the buffer */
    SL_NCCL_STATE_CTRL_IDLE = 13,
    SL_NCCL_STATE_CTRL_ACTIVE = 14,
    SL_NCCL_STATE_CTRL_SLEEP = 15,
    SL_NCCL_STATE_CTRL_WAKEUP = 16,
    SL_NCCL_STATE_CTRL_APPEND = 17,
    SL_NCCL_STATE_CTRL_APPEND_END = 18,
    SL_NCCL_STATE_OP_IN_PROGRESS = 19,
    SL_NCCL_STATE_SEND_PEER_WAIT = 20, /* the receiver has not asked for it */
    SL_NCCL_STATE_NET_UPDATE = 21,
    SL_NCCL_STATE_KERNEL_STOP = 22,
    SL_NCCL_STATE_GROUP_START_STOP = 23,
    SL_NCCL_STATE_GROUP_END_START = 24,
    SL_NCCL_STATE_PHASE_STOP = 31 /* 25 to 30 are of copy engines */
};

/* The arguments of a state; the same in v4 to v7. NULL where a state has nothing. */
union sl_nccl_profile_args {
    struct {
        size_t bytes;
    } proxy_step;
    struct {
        int appended;
    } proxy_ctrl;
    struct {
        void *data;
    } net_plugin;
    struct {
        uint64_t gpu_ns; /* the GPU's global timer */
    } kernel_ch;         /* and of phases of kernels */
};

static_assert(sizeof(union sl_nccl_profile_args) == 8, "frozen");
static_assert(sizeof(enum sl_nccl_profile_state) == 4, "an enum is passed as an int");

#endif
