/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State pages, and what sluice-bench and agents say of them in JSON, as sources of a diagnosis. An
 * input that begins with '{' is read as it is; any other one is bytes to be laid over a sound page:
 * a place of two bytes in words of eight, a length, and the bytes.
 */
#include "core/err.h"
#include "page.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define COMMS 4
#define OPS 4
#define PATHS 4

struct image {
    struct sl_state_header header;
    struct sl_state_section sections[6];
    struct sl_state_process process[1];
    struct sl_state_comm comms[COMMS];
    struct sl_state_op ops[OPS];
    struct sl_state_path paths[PATHS];
    struct sl_state_shape shapes[2];
    struct sl_state_call calls[2];
};

static void make(struct image *image)
{
    memset(image, 0, sizeof(*image));
    fuzz_header(&image->header, offsetof(struct image, sections), 6, sizeof(*image));
    image->sections[0] = FUZZ_ROWS(SL_STATE_PROCESS, process);
    image->sections[1] = FUZZ_ROWS(SL_STATE_COMM, comms);
    image->sections[2] = FUZZ_ROWS(SL_STATE_OP, ops);
    image->sections[3] = FUZZ_ROWS(SL_STATE_PATH, paths);
    image->sections[4] = FUZZ_ROWS(SL_STATE_SHAPE, shapes);
    image->sections[5] = FUZZ_ROWS(SL_STATE_CALL, calls);
    image->process->turn = image->comms[0].turn = image->ops[0].turn = image->paths[0].turn = 2;
    image->shapes[0].turn = image->calls[0].turn = 2;
    image->process->size = image->comms[0].size = 4;
    image->process->made_ns = image->comms[0].made_ns = 1;
    image->comms[0].number = image->ops[0].comm = image->paths[0].comm = image->shapes[0].comm = 1;
    atomic_store(&image->comms[0].calls.begun[0], UINT64_C(1) << SL_STATE_SHAPE_SHIFT | 7);
    image->ops[0].seq = 7;
    image->ops[0].since_ns = image->ops[0].updated_ns = 100;
    strcpy(image->ops[0].coll, "allreduce");
    strcpy(image->shapes[0].coll, "allreduce");
    image->calls[0] = (struct sl_state_call){.turn = 2,
                                             .comm = 1,
                                             .issued_ns = 50,
                                             .ended_ns = 60,
                                             .seq = 6,
                                             .peer = -1,
                                             .coll = "allreduce"};
    image->paths[0].sent_messages = image->paths[0].arriving_messages = 1;
    strcpy(image->paths[0].name, "rxe0:1 > 198.51.100.2");
}

static void judge(struct sl_job *job)
{
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER, .stall_ns = SL_HANG_STALL_NS};
    struct sl_verdicts verdicts = {.list = NULL};
    int err = sl_job_seal(job);

    sl_assert(err == 0 || err == -EBADMSG);
    if (err == 0 && job->rank_count <= 4096) { /* a rank of many digits: it only takes time */
        sl_assert(sl_hang_find(job, &options, &verdicts) == 0);
        sl_assert(verdicts.count > 0);
    }
    sl_verdicts_free(&verdicts);
}

static void read_one(struct sl_job *job, const void *bytes, size_t len)
{
    int err = sl_read_bytes(job, "fuzzed", bytes, len);

    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_job *job = sl_job_new();
    struct image image;

    sl_assert(job != NULL);
    if (size > 0 && data[0] == '{') {
        read_one(job, data, size);
    } else {
        make(&image);
        fuzz_lay(&image, sizeof(image), data, size / 2);
        read_one(job, &image, sizeof(image));
        image.process->rank++;
        fuzz_lay(&image, sizeof(image), data + size / 2, size - size / 2);
        read_one(job, &image, sizeof(image));
    }
    judge(job);
    sl_job_free(job);
    return 0;
}
