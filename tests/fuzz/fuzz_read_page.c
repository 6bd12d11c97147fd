/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State pages, and what sluice-bench and agents say of them in JSON, as sources of a diagnosis. An
 * input that begins with '{' is read as it is; any other one is bytes to be laid over a sound page:
 * a place of two bytes in words of eight, a length, and the bytes.
 */
#include "core/err.h"
#include "core/state.h"
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
    struct sl_state_section sections[5];
    struct sl_state_process process;
    struct sl_state_comm comms[COMMS];
    struct sl_state_op ops[OPS];
    struct sl_state_path paths[PATHS];
    struct sl_state_shape shapes[2];
};

static struct sl_state_section section(uint32_t kind, size_t bytes, uint32_t count, size_t at)
{
    return (struct sl_state_section){
        .kind = kind, .record_bytes = (uint32_t)bytes, .count = count, .offset = at};
}

#define ROWS(kind, member, count)                                                                  \
    section(kind, sizeof(image->member) / (count), count, offsetof(struct image, member))

static void make(struct image *image)
{
    memset(image, 0, sizeof(*image));
    memcpy(image->header.magic, SL_STATE_MAGIC, 8);
    image->header.version = SL_STATE_VERSION;
    image->header.header_bytes = sizeof(image->header);
    image->header.section_bytes = sizeof(image->sections[0]);
    image->header.section_count = 5;
    image->header.file_bytes = sizeof(*image);
    image->sections[0] = ROWS(SL_STATE_PROCESS, process, 1);
    image->sections[1] = ROWS(SL_STATE_COMM, comms, COMMS);
    image->sections[2] = ROWS(SL_STATE_OP, ops, OPS);
    image->sections[3] = ROWS(SL_STATE_PATH, paths, PATHS);
    image->sections[4] = ROWS(SL_STATE_SHAPE, shapes, 2);
    image->process.turn = image->comms[0].turn = image->ops[0].turn = image->paths[0].turn = 2;
    image->shapes[0].turn = 2;
    image->process.size = image->comms[0].size = 4;
    image->process.made_ns = image->comms[0].made_ns = 1;
    image->comms[0].number = image->ops[0].comm = image->paths[0].comm = image->shapes[0].comm = 1;
    atomic_store(&image->comms[0].calls.begun[0], UINT64_C(1) << SL_STATE_SHAPE_SHIFT | 7);
    image->ops[0].seq = 7;
    image->ops[0].since_ns = image->ops[0].updated_ns = 100;
    strcpy(image->ops[0].coll, "allreduce");
    strcpy(image->shapes[0].coll, "allreduce");
    image->paths[0].sent_messages = 1;
    strcpy(image->paths[0].name, "rxe0:1 > 198.51.100.2");
}

static void lay(struct image *image, const uint8_t *data, size_t size)
{
    size_t at = 0;

    while (size - at > 3) {
        size_t place = (size_t)(data[at] | data[at + 1] << 8) * 8, len = data[at + 2] % 32 + 1;

        at += 3;
        if (len > size - at)
            len = size - at;
        if (place < sizeof(*image) && len <= sizeof(*image) - place)
            memcpy((char *)image + place, data + at, len);
        at += len;
    }
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
        lay(&image, data, size / 2);
        read_one(job, &image, sizeof(image));
        image.process.rank++;
        lay(&image, data + size / 2, size - size / 2);
        read_one(job, &image, sizeof(image));
    }
    judge(job);
    sl_job_free(job);
    return 0;
}
