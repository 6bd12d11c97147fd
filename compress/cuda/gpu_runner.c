/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on their way over the streams of a GPU. */
#include "compress/cuda/gpu_runner.h"

#include "compress/cuda/gpu_lane.h"
#include "compress/cuda/gpu_memory.h"
#include "compress/cuda/gpu_work.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/list.h"
#include "gdr/cuda_dl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LANES 8
#define JOBS 256
#define SHARES 32                   /* of a lane, that are under way */
#define CANCEL_NS (5 * SL_NS_PER_S) /* a GPU that does not finish within it is lost */

struct job {
    struct sl_node link;      /* of a lane, or of one of the runner's lists */
    struct sl_gpu_lane *lane; /* NULL: it is on none */
    uint32_t share;
    const struct job *after; /* on its lane, if on any; one that is over may be another one now */
    struct sl_work work;
    struct sl_req *req; /* NULL: free */
    uint64_t len;
    int status;
};

struct sl_gpu_runner {
    struct sl_runner base;
    struct sl_gpu_runner *next_lost;
    struct sl_code_runner *plain;
    const struct sl_clock *clock;
    struct sl_gpu_work gpu;
    void *context;
    void *ready; /* event: of the caller's stream, of the last call */
    struct sl_gpu_lane lanes[LANES];
    struct sl_node unused, queue, ended;
    unsigned queued, busy; /* steps in the queue; steps that lanes have */
    bool lost;             /* it was waited for in vain: not again */
    char why[512];         /* of the last failure */
    struct job jobs[JOBS];
};

/* Those of GPUs that are lost: the driver would wait for what they have on their streams. */
static struct sl_gpu_runner *_Atomic all_lost;

static struct job *job_at(struct sl_node *node)
{
    return sl_container_of(node, struct job, link);
}

/* ---- steps that are over ---- */

static void leave_lane(struct sl_gpu_runner *runner, struct job *job)
{
    if (job->lane == NULL)
        return;
    job->lane->count--;
    job->lane = NULL;
    runner->busy--;
}

static void over(struct sl_gpu_runner *runner, struct job *job, int status)
{
    job->status = status;
    leave_lane(runner, job);
    sl_list_remove(&job->link);
    sl_list_push_back(&runner->ended, &job->link);
}

/* The last error is why. */
static void failed(struct sl_gpu_runner *runner, struct job *job, int status)
{
    snprintf(runner->why, sizeof(runner->why), "%s", sluice_last_error());
    over(runner, job, status);
}

/* Ends its request. */
static void end(struct sl_gpu_runner *runner, struct job *job, int status)
{
    struct sl_req *req = job->req;

    job->req = NULL;
    req->len = job->len;
    leave_lane(runner, job);
    sl_list_remove(&job->link);
    sl_list_push_back(&runner->unused, &job->link);
    if (status != 0 && status != -ECANCELED)
        sl_fail_text(status, runner->why);
    sl_req_end(req, status);
}

/* Those of the lane's share are over. */
static void end_share(struct sl_gpu_runner *runner, struct sl_gpu_lane *lane, uint32_t share,
                      int status)
{
    sl_list_foreach(&lane->jobs, node)
    {
        if (job_at(node)->share != share)
            continue;
        if (status != 0)
            failed(runner, job_at(node), status);
        else
            over(runner, job_at(node), 0);
    }
}

/* What the lane has up to the last event that is reached. The context is entered. */
static void retire(struct sl_gpu_runner *runner, struct sl_gpu_lane *lane)
{
    bool failed;
    uint32_t reached = sl_gpu_lane_reached(lane, runner->gpu.cuda, &failed);

    for (; lane->first != reached; lane->first++)
        end_share(runner, lane, lane->first, 0);
    if (failed)
        end_share(runner, lane, lane->first++, -EIO);
}

/* ---- onto the streams ---- */

/* That of the step which it is after, otherwise the one with the fewest steps. */
static struct sl_gpu_lane *lane_for(struct sl_gpu_runner *runner, const struct job *job)
{
    struct sl_gpu_lane *best = runner->lanes;

    if (job->after != NULL && job->after->lane != NULL)
        return job->after->lane;
    for (unsigned i = 1; i < LANES; i++)
        if (runner->lanes[i].count < best->count)
            best = &runner->lanes[i];
    return best;
}

/* The first step of the queue. One whose kernel cannot be started is over. */
static void launch_on(struct sl_gpu_runner *runner, struct sl_gpu_lane *lane)
{
    struct job *job = job_at(sl_list_pop_front(&runner->queue));
    int err;

    runner->queued--;
    sl_list_push_back(&lane->jobs, &job->link);
    job->lane = lane;
    job->share = lane->next;
    lane->count++;
    runner->busy++;
    err = sl_gpu_work_launch(&runner->gpu, &job->work, lane->stream);
    if (err != 0)
        failed(runner, job, err);
    else
        lane->open = true;
}

/* Puts an event behind what the lane was just given. */
static void close_share(struct sl_gpu_runner *runner, struct sl_gpu_lane *lane)
{
    int err = sl_gpu_lane_close(lane, runner->gpu.cuda);

    if (err != 0)
        end_share(runner, lane, lane->next, err);
}

/* Shares out the queue, in its order, so that what a step is after is on its lane or over. The
 * context is entered. */
static void launch(struct sl_gpu_runner *runner)
{
    while (runner->queued != 0) {
        struct sl_gpu_lane *lane = lane_for(runner, job_at(runner->queue.next));

        if (sl_gpu_lane_is_full(lane))
            break;
        launch_on(runner, lane);
    }
    for (unsigned i = 0; i < LANES; i++)
        if (runner->lanes[i].open)
            close_share(runner, &runner->lanes[i]);
}

/* Steps of the queue have no GPU to run on. The last error is why. */
static void fail_queue(struct sl_gpu_runner *runner, int err)
{
    sl_list_foreach(&runner->queue, node)
    {
        failed(runner, job_at(node), err);
    }
    runner->queued = 0;
}

static void move(struct sl_gpu_runner *runner)
{
    struct sl_gpu_visit visit;
    int err = sl_gpu_enter(runner->gpu.cuda, runner->context, &visit);

    if (err != 0) {
        fail_queue(runner, err);
        return;
    }
    for (unsigned i = 0; i < LANES; i++)
        retire(runner, &runner->lanes[i]);
    launch(runner);
    sl_gpu_leave(&visit);
}

/* ---- the contract ---- */

static struct job *job_of(struct sl_gpu_runner *runner, const struct sl_req *req)
{
    struct job *job = runner->jobs;

    while (job < runner->jobs + JOBS && job->req != req)
        job++;
    sl_assert(job < runner->jobs + JOBS);
    return job;
}

static int start(struct sl_runner *base, const struct sl_work *work, struct sl_req *req)
{
    struct sl_gpu_runner *runner = (struct sl_gpu_runner *)base;
    struct sl_node *node = runner->unused.next;
    uint64_t len;
    int err;

    if (node == &runner->unused)
        return -EAGAIN;
    err = sl_gpu_work_check(&runner->gpu, work, &len);
    if (err != 0)
        return err;
    sl_list_remove(node);
    job_at(node)->work = *work;
    job_at(node)->after = work->after != NULL ? job_of(runner, work->after) : NULL;
    job_at(node)->req = req;
    job_at(node)->len = len;
    job_at(node)->status = SL_PENDING;
    sl_list_push_back(&runner->queue, node);
    runner->queued++;
    if (work->kind == SL_WORK_ENCODE) {
        runner->plain->tally.messages++;
        runner->plain->tally.elements += work->count;
        runner->plain->tally.bytes += len;
    }
    if (runner->queued >= LANES)
        move(runner);
    return 0;
}

static unsigned progress(struct sl_runner *base, unsigned budget)
{
    struct sl_gpu_runner *runner = (struct sl_gpu_runner *)base;
    unsigned ended = 0;

    if (runner->queued != 0 || runner->busy != 0)
        move(runner);
    for (; ended < budget && !sl_list_empty(&runner->ended); ended++)
        end(runner, job_at(runner->ended.next), job_at(runner->ended.next)->status);
    return ended;
}

/* Until the GPU is through with the step, or is lost. */
static void wait_for(struct sl_gpu_runner *runner, const struct job *job)
{
    const struct timespec moment = {0, 20000};
    uint64_t deadline_ns = sl_now(runner->clock) + CANCEL_NS;
    struct sl_gpu_visit visit;

    if (sl_gpu_enter(runner->gpu.cuda, runner->context, &visit) != 0)
        return;
    for (retire(runner, job->lane); job->lane != NULL && !runner->lost;) {
        nanosleep(&moment, NULL);
        runner->lost = sl_now(runner->clock) >= deadline_ns;
        retire(runner, job->lane);
    }
    sl_gpu_leave(&visit);
}

static void cancel(struct sl_runner *base, struct sl_req *req)
{
    struct sl_gpu_runner *runner = (struct sl_gpu_runner *)base;
    struct job *job = job_of(runner, req);

    if (job->lane != NULL)
        wait_for(runner, job);
    else if (job->status == SL_PENDING)
        runner->queued--;
    end(runner, job, -ECANCELED);
}

/* ---- memory ---- */

int sl_gpu_runner_take_pinned(struct sl_gpu_runner *runner, size_t len, void **out)
{
    return sl_gpu_take_pinned(runner->gpu.cuda, runner->context, len, out);
}

/* A GPU that is lost may still write there, and the driver would wait for it: what it has stays. */
void sl_gpu_runner_give_pinned(struct sl_gpu_runner *runner, void *memory)
{
    if (!runner->lost)
        sl_gpu_give_pinned(runner->gpu.cuda, runner->context, memory);
}

static int take(struct sl_runner *base, size_t tmp_len, size_t wire_len, void **tmp, void **wire)
{
    struct sl_gpu_runner *runner = (struct sl_gpu_runner *)base;
    void *sums = NULL, *bytes = NULL;
    int err = 0;

    if (tmp_len != 0)
        err = sl_gpu_take(runner->gpu.cuda, runner->context, tmp_len, &sums);
    if (err == 0 && wire_len != 0)
        err = sl_gpu_runner_take_pinned(runner, wire_len, &bytes);
    if (err != 0) {
        sl_gpu_give(runner->gpu.cuda, runner->context, sums);
        return err;
    }
    *tmp = sums;
    *wire = bytes;
    return 0;
}

static void give(struct sl_runner *base, void *tmp, void *wire)
{
    struct sl_gpu_runner *runner = (struct sl_gpu_runner *)base;

    if (!runner->lost)
        sl_gpu_give(runner->gpu.cuda, runner->context, tmp);
    sl_gpu_runner_give_pinned(runner, wire);
}

/* Named as the one of the processor: the bytes are the same, and so are the calls. */
static const struct sl_runner_ops ops = {.name = "codec",
                                         .in_order = true,
                                         .start = start,
                                         .progress = progress,
                                         .cancel = cancel,
                                         .take = take,
                                         .give = give};

struct sl_runner *sl_gpu_runner_base(struct sl_gpu_runner *runner)
{
    return &runner->base;
}

bool sl_gpu_runner_serves(const struct sl_gpu_runner *runner, const struct sl_gpu_memory *memory)
{
    return runner->gpu.cuda == memory->cuda && runner->context == memory->context;
}

/* All lanes at once: the next call's event is the same one, perhaps of another stream, and steps of
 * this call may begin later than that. */
int sl_gpu_runner_after(struct sl_gpu_runner *runner, void *stream)
{
    const struct sl_cuda *cuda = runner->gpu.cuda;
    struct sl_gpu_visit visit;
    int err = sl_gpu_enter(cuda, runner->context, &visit), result;

    if (err != 0)
        return err;
    result = cuda->cuEventRecord(runner->ready, stream);
    if (result != SL_CUDA_SUCCESS)
        err = sl_cuda_fail(cuda, -EIO, "cuEventRecord", result);
    for (unsigned i = 0; i < LANES && err == 0; i++)
        err = sl_gpu_lane_follow(&runner->lanes[i], cuda, runner->ready);
    sl_gpu_leave(&visit);
    return err;
}

/* ---- made and freed ---- */

static void parts_fini(struct sl_gpu_runner *runner)
{
    const struct sl_cuda *cuda = runner->gpu.cuda;

    for (unsigned i = 0; i < LANES; i++)
        sl_gpu_lane_fini(&runner->lanes[i], cuda);
    if (runner->ready != NULL)
        (void)cuda->cuEventDestroy_v2(runner->ready);
    sl_gpu_work_fini(&runner->gpu);
}

static int parts_init(struct sl_gpu_runner *runner, const struct sl_cuda *cuda)
{
    int err = sl_gpu_work_init(&runner->gpu, cuda, runner->plain), result;

    if (err != 0)
        return err;
    result = cuda->cuEventCreate(&runner->ready, SL_CU_EVENT_DISABLE_TIMING);
    for (unsigned i = 0; i < LANES && result == SL_CUDA_SUCCESS; i++)
        result = sl_gpu_lane_init(&runner->lanes[i], cuda);
    return result == SL_CUDA_SUCCESS
               ? 0
               : sl_cuda_fail(cuda, -EIO, "a stream or an event of the codec's", result);
}

int sl_gpu_runner_create(const struct sl_gpu_memory *memory, struct sl_code_runner *plain,
                         const struct sl_clock *clock, struct sl_gpu_runner **out)
{
    struct sl_gpu_runner *runner;
    struct sl_gpu_visit visit;
    int err;

    if (memory->context == NULL)
        return sl_fail(-ENOTSUP, "GPU %d has no context in which a codec could run",
                       memory->device);
    runner = calloc(1, sizeof(*runner));
    if (runner == NULL)
        return sl_fail(-ENOMEM, "no memory to encode on a GPU");
    runner->base.ops = &ops;
    runner->plain = plain;
    runner->clock = clock;
    runner->context = memory->context;
    sl_list_init(&runner->unused);
    sl_list_init(&runner->queue);
    sl_list_init(&runner->ended);
    for (unsigned i = 0; i < LANES; i++)
        sl_list_init(&runner->lanes[i].jobs);
    for (unsigned i = 0; i < JOBS; i++)
        sl_list_push_back(&runner->unused, &runner->jobs[i].link);
    runner->gpu.cuda = memory->cuda;
    err = sl_gpu_enter(memory->cuda, memory->context, &visit);
    if (err == 0) {
        err = parts_init(runner, memory->cuda);
        if (err != 0)
            parts_fini(runner);
        sl_gpu_leave(&visit);
    }
    if (err != 0) {
        free(runner);
        return err;
    }
    *out = runner;
    return 0;
}

void sl_gpu_runner_destroy(struct sl_gpu_runner *runner)
{
    struct sl_gpu_visit visit;

    if (runner == NULL)
        return;
    sl_assert(runner->queued == 0 && runner->busy == 0);
    if (runner->lost) {
        runner->next_lost = atomic_exchange(&all_lost, runner);
        return;
    }
    if (sl_gpu_enter(runner->gpu.cuda, runner->context, &visit) == 0) {
        parts_fini(runner);
        sl_gpu_leave(&visit);
    }
    free(runner);
}
