/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source: GPUs, by NVML in a process of its own (monitor/gpu.h).
 *
 * The child is given so many periods to say something. One that is silent is killed and begun anew,
 * later each time (monitor/reader.h).
 */
#include "monitor/gpu.h"
#include "monitor/nvml.h"
#include "monitor/reader.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERIODS 5 /* of the agent, between readings of GPUs */
#define SILENT 3  /* of those, after which the child hangs */
#define BACK_OFF_MOST_NS (10 * SL_MON_MIN)
#define DRIVER "/dev/nvidiactl"

struct source {
    struct sl_source_host host;
    struct sl_mon_reader reader;
    uint64_t heard_ns, next_ns, back_off_ns;
    uint64_t restarts;
    char why[SL_MON_TEXT]; /* it was put off */
    struct sl_mon_gpu gpus[SL_MON_GPUS_MAX];
    char part[sizeof(struct sl_mon_gpu_record)]; /* a record, or a part of one */
};

static uint64_t now_ns(const struct source *source)
{
    return sl_mon_time(source->host.mon)->mono_ns;
}

static uint64_t period_ns(const struct source *source)
{
    return (uint64_t)source->host.config->period_ms * 1000000 * PERIODS;
}

static int be_child(const void *arg, int fd)
{
    const struct source *source = arg;

    return sl_mon_nvml_run(source->host.config->nvml_library, fd,
                           (unsigned)(period_ns(source) / 1000000));
}

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_reader_end(&source->reader);
}

/*
 * It is to be begun again, and later than last time. That it is down is no trouble of the agent,
 * which goes on with all else (-ENODEV); that the driver does not answer is one of the host.
 */
static int put_off(struct source *source, bool is_hung)
{
    struct sl_mon_evidence evidence = {.source = "nvml", .after = source->restarts + 1};
    struct sl_mon_subject *host = sl_mon_subject(source->host.mon, SL_MON_HOST, "host");

    source->back_off_ns =
        source->back_off_ns == 0 ? 2 * period_ns(source) : 2 * source->back_off_ns;
    if (source->back_off_ns > BACK_OFF_MOST_NS)
        source->back_off_ns = BACK_OFF_MOST_NS;
    source->next_ns = now_ns(source) + source->back_off_ns;
    source->restarts++;
    snprintf(evidence.text, sizeof(evidence.text), "%s", source->why);
    if (is_hung && host != NULL)
        sl_mon_sample(source->host.mon, host, SL_MON_CHECK_HOST_GPUS, true, &evidence);
    return sl_fail(-ENODEV, "%s", source->why);
}

/* All GPUs were read. */
static void round_is_over(struct source *source)
{
    struct sl_mon_subject *host = sl_mon_subject(source->host.mon, SL_MON_HOST, "host");

    source->back_off_ns = 0;
    if (host != NULL)
        sl_mon_sample(source->host.mon, host, SL_MON_CHECK_HOST_GPUS, false, NULL);
}

static bool has_driver(const struct source *source)
{
    const char *library = source->host.config->nvml_library;

    return access(strchr(library, '/') != NULL ? library : DRIVER, F_OK) == 0;
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err;

    if (!has_driver(source))
        return sl_fail(-ENODEV, "there is no NVIDIA driver here: no %s",
                       strchr(source->host.config->nvml_library, '/') != NULL
                           ? source->host.config->nvml_library
                           : DRIVER);
    if (now_ns(source) < source->next_ns)
        return sl_fail(-ENODEV, "%.160s; NVML is asked again in %.0f s", source->why,
                       (double)(source->next_ns - now_ns(source)) / 1e9);
    err = sl_mon_reader_begin(&source->reader, "sluiced-nvml", be_child, source);
    if (err != 0)
        return err;
    source->heard_ns = now_ns(source);
    return 0;
}

/* ---- what it says ---- */

static struct sl_mon_gpu *gpu_of(struct source *source, const char *name)
{
    struct sl_mon_gpu *free_one = NULL;

    for (unsigned i = 0; i < SL_MON_GPUS_MAX; i++) {
        struct sl_mon_gpu *gpu = &source->gpus[i];

        if (gpu->subject == NULL)
            free_one = free_one == NULL ? gpu : free_one;
        else if (strcmp(gpu->subject->name, name) == 0)
            return gpu;
    }
    if (free_one != NULL)
        free_one->subject = sl_mon_subject(source->host.mon, SL_MON_GPU, name);
    return free_one == NULL || free_one->subject == NULL ? NULL : free_one;
}

static int take(void *arg)
{
    struct source *source = arg;
    struct sl_mon_gpu_record record;
    struct sl_mon_gpu *gpu;

    if (!sl_mon_gpu_parse(source->part, sizeof(source->part), &record)) {
        snprintf(source->why, sizeof(source->why), "NVML's process says what is no record");
        return put_off(source, false);
    }
    source->heard_ns = now_ns(source);
    switch (record.type) {
    case SL_MON_GPU_ABSENT:
        snprintf(source->why, sizeof(source->why), "NVML cannot be had: %s", record.text);
        return put_off(source, false);
    case SL_MON_GPU_ROUND: round_is_over(source); return 0;
    default: break;
    }
    gpu = gpu_of(source, record.name);
    if (gpu != NULL)
        sl_mon_gpu_judge(source->host.mon, gpu, &record);
    return 0;
}

static int read_source(void *arg)
{
    struct source *source = arg;
    int taken = sl_mon_reader_each(&source->reader, source->part, sizeof(source->part),
                                   4 * SL_MON_GPUS_MAX, take, source);

    if (taken != -EPIPE)
        return taken;
    snprintf(source->why, sizeof(source->why), "NVML's process ended");
    return put_off(source, true);
}

static int tick(void *arg)
{
    struct source *source = arg;
    int taken = read_source(source);

    (void)sl_mon_reader_reap(&source->reader);
    if (taken < 0)
        return taken;
    if (now_ns(source) - source->heard_ns <= SILENT * period_ns(source))
        return 0;
    snprintf(source->why, sizeof(source->why), "NVML did not answer for %.1f s, and was killed",
             (double)(now_ns(source) - source->heard_ns) / 1e9);
    return put_off(source, true);
}

static int fd(const void *arg)
{
    const struct source *source = arg;

    return source->reader.fd;
}

/* ---- its life ---- */

static void destroy(void *arg)
{
    struct source *source = arg;

    sl_mon_reader_fini(&source->reader);
    free(source);
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for GPUs");
    source->host = *host;
    sl_mon_reader_init(&source->reader);
    *out = source;
    return 0;
}

/* ---- what others ask ---- */

static unsigned count_left(const struct source *source)
{
    unsigned left = 0;

    for (unsigned i = 0; i < SL_MON_READERS_LEFT; i++)
        left += source->reader.left[i] != 0;
    return left;
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    static const struct {
        const char *name, *kind;
        size_t offset;
    } errors[] = {
        {"sluice_gpu_errors_total", "ecc_uncorrected", offsetof(struct sl_mon_gpu, ecc)},
        {"sluice_gpu_errors_total", "nvlink_replay", offsetof(struct sl_mon_gpu, replays)},
        {"sluice_gpu_errors_total", "nvlink_recovery", offsetof(struct sl_mon_gpu, repairs)}};
    const struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_gpu_temperature_celsius", "gauge", "celsius",
                          "Temperature of the GPU.");
    for (unsigned i = 0; i < SL_MON_GPUS_MAX; i++)
        if (source->gpus[i].last_ns != 0) {
            sl_mon_metrics_open(out, "sluice_gpu_temperature_celsius", "gpu",
                                source->gpus[i].subject->name);
            fprintf(out, "} %d\n", source->gpus[i].last.temperature);
        }
    sl_mon_metrics_family(format, out, "sluice_gpu_errors", "counter", "", "Errors, by kind.");
    for (unsigned i = 0; i < SL_MON_GPUS_MAX; i++)
        for (unsigned e = 0; source->gpus[i].subject != NULL && e < SL_ARRAY_LEN(errors); e++) {
            const char *gpu = (const char *)&source->gpus[i];
            uint64_t value;

            memcpy(&value, gpu + errors[e].offset, sizeof(value));
            sl_mon_metrics_open(out, errors[e].name, "gpu", source->gpus[i].subject->name);
            sl_mon_metrics_label(out, "kind", errors[e].kind);
            sl_mon_metrics_number(out, value);
        }
    sl_mon_metrics_family(format, out, "sluice_gpu_reader_restarts", "counter", "",
                          "Times that NVML's process ended, or was killed as it did not answer.");
    fprintf(out, "sluice_gpu_reader_restarts_total %" PRIu64 "\n", source->restarts);
    sl_mon_metrics_family(format, out, "sluice_gpu_reader_hung", "gauge", "",
                          "Processes that hang in the GPUs' driver and cannot be killed.");
    fprintf(out, "sluice_gpu_reader_hung %u\n", count_left(source));
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;
    struct json_object *gpus = json_object_new_array();

    for (unsigned i = 0; i < SL_MON_GPUS_MAX; i++) {
        const struct sl_mon_gpu *at = &source->gpus[i];
        struct json_object *gpu;

        if (at->last_ns == 0)
            continue;
        gpu = json_object_new_object();
        json_object_object_add(gpu, "name", json_object_new_string(at->subject->name));
        json_object_object_add(gpu, "temperature", json_object_new_int64(at->last.temperature));
        json_object_object_add(gpu, "use_percent", json_object_new_int64(at->last.use));
        json_object_object_add(gpu, "nvlinks",
                               json_object_new_int64(__builtin_popcount(at->last.links)));
        json_object_object_add(gpu, "ecc_uncorrected",
                               json_object_new_int64((int64_t)at->last.ecc));
        json_object_object_add(gpu, "rows_replaced", json_object_new_int64(at->last.rows));
        json_object_array_add(gpus, gpu);
    }
    json_object_object_add(out, "gpus", gpus);
    json_object_object_add(out, "reader_restarts",
                           json_object_new_int64((int64_t)source->restarts));
    json_object_object_add(out, "reader_hung", json_object_new_int64(count_left(source)));
}

const struct sl_source_class sl_source_gpu = {.name = "gpu",
                                              .how = "nvml",
                                              .wanted = offsetof(struct sl_mon_config, gpu),
                                              .create = create,
                                              .destroy = destroy,
                                              .open = open_source,
                                              .close = close_source,
                                              .fd = fd,
                                              .read = read_source,
                                              .tick = tick,
                                              .metrics = metrics,
                                              .json = json};
