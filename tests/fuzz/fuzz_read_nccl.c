/* SPDX-License-Identifier: Apache-2.0 */
/* Files of NCCL's events and traces of its example plugin, of whatever user, as the diagnosis reads
 * them: an input that begins with '[' is a trace; any other is laid over a sound file of events, of
 * two ranks one after the other. */
#include "core/err.h"
#include "page.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS 8
#define RING 8

/* As docs/nccl.md has them, in words. */
struct image {
    struct sl_state_header header;
    struct sl_state_section sections[5];
    struct sl_state_process process[1];
    uint64_t head[1][5], comms[2][10], slots[SLOTS][16], ring[RING][16];
};

enum { TURN, ID, PARENT, START, STOP, SINCE, TYPE, BODY };

static void event(uint64_t *to, uint64_t turn, uint64_t id, uint64_t parent, unsigned type)
{
    to[TURN] = turn;
    to[ID] = id;
    to[PARENT] = parent;
    to[START] = to[SINCE] = 100 + id;
    to[TYPE] = type | (type == 4 ? 10 << 8 : 0); /* a step waits for data */
}

static void make(struct image *image, uint32_t rank)
{
    memset(image, 0, sizeof(*image));
    fuzz_header(&image->header, offsetof(struct image, sections), 5, sizeof(*image));
    image->sections[0] = FUZZ_ROWS(SL_STATE_PROCESS, process);
    image->sections[1] = FUZZ_ROWS(SL_STATE_NCCL, head);
    image->sections[2] = FUZZ_ROWS(SL_STATE_NCCL_COMM, comms);
    image->sections[3] = FUZZ_ROWS(SL_STATE_NCCL_OPEN, slots);
    image->sections[4] = FUZZ_ROWS(SL_STATE_NCCL_OVER, ring);
    image->process[0].turn = image->head[0][0] = image->comms[0][0] = 2;
    image->process[0].pid = 1 + (int)rank;
    image->comms[0][1] = 0xabc;                    /* id */
    image->comms[0][3] = (uint64_t)4 << 32 | rank; /* rank, ranks */
    image->comms[0][4] = (uint64_t)1 << 32 | 2;    /* nodes, lives */
    image->comms[0][9] = 2;                        /* calls */
    event(image->ring[0], 1, 1, 0, 1);             /* collectives that are enqueued */
    event(image->ring[1], 2, 2, 0, 1);
    event(image->ring[2], 3, 3, 1, 3); /* the proxy's, over */
    image->ring[2][BODY + 1] = 1;      /* peer */
    for (unsigned i = 0; i < 3; i++)
        image->ring[i][STOP] = 200;
    strcpy((char *)&image->ring[0][BODY + 3], "AllReduce");
    strcpy((char *)&image->ring[1][BODY + 3], "AllReduce");
    event(image->slots[0], 1, 4, 2, 3); /* going on */
    image->slots[0][BODY + 1] = 1;
    event(image->slots[1], 1, 5, 4, 4);
}

static void read_one(struct sl_job *job, const void *bytes, size_t len)
{
    int err = sl_read_bytes(job, "fuzzed", bytes, len);

    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
}

static void judge(struct sl_job *job)
{
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER, .stall_ns = 50};
    struct sl_verdicts verdicts = {.list = NULL};
    int err = sl_job_seal(job);

    sl_assert(err == 0 || err == -EBADMSG);
    if (err == 0 && job->rank_count <= 4096) { /* a rank of many digits: it only takes time */
        sl_assert(sl_hang_find(job, &options, &verdicts) == 0);
        sl_assert(verdicts.count > 0);
    }
    sl_verdicts_free(&verdicts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_job *job = sl_job_new();
    struct image image;

    sl_assert(job != NULL);
    if (size > 0 && data[0] == '[')
        read_one(job, data, size);
    for (uint32_t rank = 0; rank < 2 && (size == 0 || data[0] != '['); rank++) {
        make(&image, rank);
        fuzz_lay(&image, sizeof(image), rank == 0 ? data : data + size / 2,
                 rank == 0 ? size / 2 : size - size / 2);
        read_one(job, &image, sizeof(image));
    }
    judge(job);
    sl_job_free(job);
    return 0;
}
