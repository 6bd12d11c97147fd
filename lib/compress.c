/* SPDX-License-Identifier: Apache-2.0 */
/* Compression as a user asks for it: switched on, and what it came to. */
#include "lib/compress.h"

#include "compress/codec.h"
#include "compress/cuda/gpu_runner.h"
#include "compress/runner.h"
#include "core/clock.h"
#include "core/log.h"
#include "lib/args.h"
#include "lib/compress_report.h"
#include "lib/compress_setting.h"
#include "lib/device.h"

#include <sluice/compress.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SL_CODING_STAGES == SL_CODE_STAGES &&
                   sizeof(struct sl_coding_extent) == sizeof(struct sl_code_extent),
               "what the engine says of a plan is what residuals are made by");

struct compression {
    struct sl_coding base;
    struct sl_code_runner runner, inner;
    struct sl_compression_counted counted;
    struct sl_gpu_runner *gpu; /* NULL: no call was on a GPU's memory */
};

static struct compression *of(struct sl_coding *coding)
{
    return sl_container_of(coding, struct compression, base);
}

/* ---- what the engine asks ---- */

static const struct sl_code *code_for(struct sl_coding *coding, enum sluice_dtype dtype, bool sums)
{
    return sl_code_runner_code(&of(coding)->runner, dtype, sums);
}

static const struct sl_code *inner_for(struct sl_coding *coding, enum sluice_dtype dtype)
{
    return sl_code_runner_code(&of(coding)->inner, dtype, false);
}

static int take_pinned(void *gpu, size_t len, void **out)
{
    return sl_gpu_runner_take_pinned(gpu, len, out);
}

static void give_pinned(void *gpu, void *memory)
{
    sl_gpu_runner_give_pinned(gpu, memory);
}

/* Once calls are on a GPU, in memory that it reaches. */
static int keep(struct sl_coding *coding, const struct sl_coding_extent *extents, void **state)
{
    struct sl_code_extent copy[SL_CODE_STAGES];
    const struct sl_code_memory memory = {take_pinned, give_pinned, of(coding)->gpu};
    struct sl_code_state *made;

    for (unsigned i = 0; i < SL_CODE_STAGES; i++)
        copy[i] = (struct sl_code_extent){extents[i].first, extents[i].count};
    int err = sl_code_state_create(copy, of(coding)->gpu != NULL ? &memory : NULL, &made);

    if (err == 0)
        *state = made;
    return err;
}

static uint64_t keep_bytes(const struct sl_coding_extent *extents)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < SL_CODE_STAGES; i++)
        bytes += extents[i].count * SL_TILE * sizeof(float);
    return bytes;
}

static int use_device(struct sl_coding *coding, const struct sl_gpu_memory *memory)
{
    struct compression *c = of(coding);
    int err;

    if (SL_LIKELY(c->gpu != NULL))
        return sl_gpu_runner_serves(c->gpu, memory)
                   ? 0
                   : sl_fail(-ENOTSUP,
                             "a communicator compresses on one GPU, and GPU %d is not that of its "
                             "first such call",
                             memory->device);
    err = sl_gpu_runner_create(memory, &c->runner, &sl_clock_monotonic, &c->gpu);
    if (err == 0)
        coding->device_runner = sl_gpu_runner_base(c->gpu);
    return err;
}

static int follow(struct sl_coding *coding, void *stream)
{
    return sl_gpu_runner_after(of(coding)->gpu, stream);
}

static void free_compression(struct sl_coding *coding)
{
    sl_compression_ends(&of(coding)->counted);
    sl_gpu_runner_destroy(of(coding)->gpu);
    free(of(coding));
}

static uint64_t load(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

static void add_up(const struct sl_compression_counted *counted, struct sl_compression_sums *sums)
{
    const struct compression *compression =
        sl_container_of(counted, const struct compression, counted);
    const struct sl_coding *coding = &compression->base;

    sums->calls += load(&coding->calls);
    sums->raw_calls += load(&coding->raw_calls);
    sums->raw_bytes += load(&coding->raw_bytes);
    sums->wire_bytes += load(&coding->bytes);
    sums->raw_ns += load(&coding->raw_ns);
    sums->busy_ns += load(&coding->busy_ns);
    sums->measured |= compression->runner.measure;
    sums->power += sl_code_tally_read(&compression->runner.tally.power);
    sums->error += sl_code_tally_read(&compression->runner.tally.error);
}

static int check_feedback(const struct sl_codec_spec *spec)
{
    const char *name = sl_codec_by_id(spec->id)->name;

    if ((sl_codec_by_id(spec->id)->flags & SL_CODEC_FIXED) == 0)
        return sl_fail(-EINVAL,
                       "there is no feedback=on for %s, which loses nothing or has no fixed size",
                       name);
    if (spec->row != 0)
        return sl_fail(-EINVAL,
                       "there is no feedback=on for %s: what comes in a row is another thing each "
                       "time",
                       name);
    if (spec->id == SL_CODEC_SKETCH)
        return sl_fail(-EINVAL,
                       "there is no feedback=on for sketch: what a rank's own sketch gives "
                       "back is mostly of other elements, and residuals would grow");
    return 0;
}

int sl_compression_create(const char *text, struct sl_coding **out)
{
    struct sl_codec_spec spec, inside;
    struct sl_compression_setting setting;
    struct compression *made;
    int err;

    *out = NULL;
    if (text == NULL || text[0] == '\0')
        return 0;
    err = sl_compression_parse(text, &setting);
    err = err ?: sl_codec_parse(setting.codec, &spec);
    err = err ?: sl_codec_parse(setting.inside, &inside);
    if (err != 0)
        return err;
    if (setting.vote && setting.recipe != NULL && strcmp(setting.recipe, "sum") != 0)
        return sl_fail(-EINVAL, "vote=on has allreduces go by recipe=sum, and not by recipe=%s",
                       setting.recipe);
    if (spec.dtype != SLUICE_F32)
        return sl_fail(-EINVAL, "the type of elements is that of each call, and not asked for");
    if (setting.feedback)
        err = check_feedback(&spec);
    if (setting.feedback && err == 0 && (sl_codec_by_id(inside.id)->flags & SL_CODEC_LOSSLESS) == 0)
        err = check_feedback(&inside);
    if (err != 0)
        return err;
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return sl_fail(-ENOMEM, "no memory to compress");
    sl_code_runner_init(&made->runner, &spec);
    sl_code_runner_init(&made->inner, &inside);
    if (setting.vote && (err = sl_code_runner_vote(&made->runner)) != 0) {
        free(made);
        return err;
    }
    made->runner.measure = setting.measure;
    made->base = (struct sl_coding){.users = 1,
                                    .runner = &made->runner.base,
                                    .inner_runner = &made->inner.base,
                                    .min_bytes = (uint64_t)setting.min_bytes,
                                    .always = setting.always,
                                    .recipe = setting.recipe,
                                    .code = code_for,
                                    .inner = inner_for,
                                    .keep = setting.feedback ? keep : NULL,
                                    .keep_bytes = keep_bytes,
                                    .keep_max = (uint64_t)setting.keep_bytes,
                                    .forget = sl_code_state_destroy,
                                    .use_device = use_device,
                                    .follow = follow,
                                    .free = free_compression};
    made->counted.sum = add_up;
    sl_compression_begins(&made->counted);
    *out = &made->base;
    return 0;
}

const char *sl_compression_name(uint32_t number)
{
    const struct sl_codec *codec = sl_codec_by_id(number);

    return codec != NULL ? codec->name : NULL;
}

void sl_compression_of(struct sluice_comm *comm, const void *buffer)
{
    comm->recall_as = buffer;
}

/* ---- public ---- */

int sl_check_operation(const struct sluice_operation *operation)
{
    return operation != NULL ? sl_check_process(operation->comm)
                             : sl_fail(-EINVAL, "the operation is NULL");
}

int sluice_comm_set_compression(struct sluice_comm *comm, const char *text)
{
    struct sl_coding *coding;
    int err = sl_check_comm(comm);

    err = err ?: sl_check_process(comm);
    err = err ?: sl_compression_create(text, &coding);
    if (err != 0)
        return err;
    sl_enter(comm);
    comm->codec_name = sl_compression_name;
    sl_comm_set_coding(comm, coding);
    sl_coding_put(coding);
    sl_leave(comm);
    return 0;
}

static int set_coding(struct sluice_operation *operation, struct sl_coding *coding)
{
    struct sl_call call = operation->plan->call;
    int err = sl_device_look(operation->comm, coding, &call, operation->in, operation->out);

    return err ?: sl_operation_set_coding(operation, coding);
}

int sluice_operation_set_compression(struct sluice_operation *operation, const char *text)
{
    struct sl_coding *coding;
    int err = sl_check_operation(operation);

    err = err ?: sl_compression_create(text, &coding);
    if (err != 0)
        return err;
    sl_enter(operation->comm);
    err = operation->comm->closed
              ? sl_fail(-EINVAL, "the communicator of this operation was destroyed")
              : set_coding(operation, coding);
    sl_coding_put(coding);
    sl_leave(operation->comm);
    return err;
}

static void report(struct sl_coding *coding, struct sluice_compression_report *out)
{
    const struct sl_code_runner *runner = &of(coding)->runner;

    out->calls = coding->calls;
    out->raw_bytes = coding->raw_bytes;
    out->wire_bytes = coding->bytes;
    out->raw_calls = coding->raw_calls;
    out->saved_ns = (int64_t)(coding->raw_ns - coding->busy_ns);
    out->error = !runner->measure           ? -1
                 : runner->tally.power == 0 ? 0
                                            : runner->tally.error / runner->tally.power;
}

int sluice_comm_compression_report(struct sluice_comm *comm, struct sluice_compression_report *out)
{
    int err = sl_check_comm(comm);

    if (err == 0 && out == NULL)
        err = sl_fail(-EINVAL, "there is no place for the report");
    err = err ?: sl_check_process(comm);
    if (err != 0)
        return err;
    *out = (struct sluice_compression_report){.error = -1};
    sl_enter(comm);
    if (comm->coding != NULL)
        report(comm->coding, out);
    sl_leave(comm);
    return 0;
}

int sluice_operation_compression_report(struct sluice_operation *operation,
                                        struct sluice_compression_report *out)
{
    int err = sl_check_operation(operation);

    if (err == 0 && out == NULL)
        err = sl_fail(-EINVAL, "there is no place for the report");
    if (err != 0)
        return err;
    *out = (struct sluice_compression_report){.error = -1};
    sl_enter(operation->comm);
    if (operation->plan->account != NULL)
        report(operation->plan->account, out);
    sl_leave(operation->comm);
    return 0;
}

void sl_compression_log(struct sl_coding *coding)
{
    struct sl_compression_sums sums = {.calls = 0};
    char text[512];

    if (coding == NULL)
        return;
    add_up(&of(coding)->counted, &sums);
    if (sl_compression_text(&sums, text, sizeof(text)))
        sl_info("compress", "%s: %s", of(coding)->runner.codec->name, text);
}
