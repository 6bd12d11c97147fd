/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of NCCL's events of a rank (docs/nccl.md), as it is read once a period: what goes on
 * in it, since when, and what that waits for. So many of its slots at a time; nothing is mapped,
 * locked or written.
 */
#ifndef SL_MONITOR_NCCL_H
#define SL_MONITOR_NCCL_H

#include "core/state_read.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_MON_NCCL_CHUNK 256   /* slots that are looked at together */
#define SL_MON_NCCL_SLOTS 65536 /* that are looked at in all */

/* What stands in all slots, of one round. */
struct sl_mon_nccl_view {
    unsigned open;     /* collectives, sends and receives that go on */
    uint64_t since_ns; /* of the oldest of them */
    uint64_t seq, count;
    int32_t rank, peer; /* root, or the peer */
    bool is_p2p;
    char func[17], datatype[9];
    unsigned comm;    /* place in the file's table */
    uint64_t step_ns; /* when the step that waits longest came to its state; 0: there is none */
    uint8_t step_state;
};

struct sl_mon_nccl {
    int fd; /* borrowed */
    struct sl_state_reader reader;
    uint64_t written, dropped; /* so far */
    uint32_t next;             /* slot */
    struct sl_mon_nccl_view now, building;
    uint64_t comm_id; /* of the oldest operation; 0: not known */
};

void sl_mon_nccl_init(struct sl_mon_nccl *nccl, int fd);
/* Looks at up to so many chunks. -EPROTO: it is no such file. */
int sl_mon_nccl_read(struct sl_mon_nccl *nccl, unsigned chunks);
/* What a step in that state waits for, as docs/nccl.md has it; NULL: nothing that is known. */
const char *sl_mon_nccl_waits(uint8_t state);

#endif
