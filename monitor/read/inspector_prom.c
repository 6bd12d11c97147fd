/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL Inspector's metrics in Prometheus's text form (NCCL_INSPECTOR_PROM_DUMP=1), a file a GPU:
 *
 *     nccl_bus_bandwidth_gbs{node="n1",gpu="GPU0",comm_name="dp",n_nodes="1",nranks="4",...} 678.2
 *
 * Each becomes a sample. Older files say the rank; newer ones the node and the GPU alone: these are
 * ranks in the order in which they are read.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/prom.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "nccl_"
#define GPUS_MAX 1024 /* of a file */

struct file {
    struct sl_prom prom;
    struct sl_job *job;
    uint32_t rank; /* of the last sample */
    uint32_t gpu_count;
};

static bool is_inspector_prom(const char *head, size_t len)
{
    static const char *const names[] = {
        "nccl_bus_bandwidth_gbs{",     "nccl_collective_exec_time_microseconds{",
        "nccl_p2p_bus_bandwidth_gbs{", "nccl_p2p_exec_time_microseconds{",
        "nccl_collectives_total{",     "nccl_algorithm_bandwidth_gbs{"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (sl_prom_has(head, len, names[i]))
            return true;
    return false;
}

static const char *label_of(const struct sl_prom *prom, const char *name, const char *older)
{
    const char *value = sl_prom_label(prom, name);

    return value != NULL ? value : sl_prom_label(prom, older);
}

static bool is_of(const struct sl_job *job, uint32_t rank, uint32_t host, uint32_t process)
{
    return rank < job->rank_count && job->ranks[rank].host == host &&
           job->ranks[rank].process == process;
}

/* The rank of a GPU that is not the last one's: what it says, else the one of that name, else the
 * next new one. */
static int change_rank(struct file *file, const char *told, uint32_t host, uint32_t process)
{
    struct sl_job *job = file->job;
    uint64_t number = 0;
    int err;

    if (++file->gpu_count > GPUS_MAX)
        return sl_lines_bad(&file->prom.lines, "more than %d GPUs take turns in it", GPUS_MAX);
    if (told != NULL) {
        if (!sl_text_number(told, strlen(told), &number) || number >= SL_JOB_RANKS_MAX)
            return sl_lines_bad(&file->prom.lines, "\"%.40s\" is no rank", told);
        file->rank = (uint32_t)number;
    } else {
        for (file->rank = 0; file->rank < job->rank_count; file->rank++)
            if (is_of(job, file->rank, host, process))
                return 0;
    }
    err = sl_job_add_rank(job, file->rank);
    if (err != 0)
        return err;
    job->ranks[file->rank].host = host;
    job->ranks[file->rank].process = process;
    return 0;
}

static int find_rank(struct file *file)
{
    const struct sl_prom *prom = &file->prom;
    const char *node = label_of(prom, "node", "hostname");
    const char *gpu = label_of(prom, "gpu", "gpu_device_id");
    uint32_t host, process;

    if (node == NULL || gpu == NULL)
        return sl_lines_bad(&prom->lines, "%.60s has no labels node and gpu", prom->name);
    host = sl_job_text(file->job, node, strlen(node));
    process = sl_job_text(file->job, gpu, strlen(gpu));
    if (host == SL_JOB_NONE || process == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the names of hosts");
    if (is_of(file->job, file->rank, host, process))
        return 0;
    return change_rank(file, sl_prom_label(prom, "rank"), host, process);
}

/* "NAME{communicator, operation, size}". */
static int name_series(struct sl_job *job, const struct sl_prom *prom, uint32_t *name)
{
    const char *comm = label_of(prom, "comm_name", "comm_id");
    const char *op = label_of(prom, "collective", "p2p_operation");
    const char *size = sl_prom_label(prom, "message_size");
    char text[512];

    text[0] = '\0';
    if (!sl_text_add(text, sizeof(text), "%s{%s, %s, %s}", prom->name, comm != NULL ? comm : "",
                     op != NULL ? op : "", size != NULL ? size : ""))
        return sl_lines_bad(&prom->lines, "its labels are longer than %zu bytes", sizeof(text) - 1);
    *name = sl_job_text(job, text, strlen(text));
    return *name != SL_JOB_NONE ? 0 : sl_fail(-ENOMEM, "no memory for names of metrics");
}

static int add_sample(struct file *file)
{
    const struct sl_prom *prom = &file->prom;
    struct sl_job_sample sample = {.value = prom->value};
    int err;

    if (!isfinite(prom->value))
        return sl_lines_bad(&prom->lines, "%.60s has no finite value", prom->name);
    if (prom->timestamp_ms >= 0 && prom->timestamp_ms <= INT64_MAX / 1000000)
        sample.at = prom->timestamp_ms * 1000000;
    err = find_rank(file);
    sample.rank = file->rank;
    if (err == 0)
        err = name_series(file->job, prom, &sample.name);
    return err != 0 ? err : sl_job_add_sample(file->job, &sample);
}

static int read_inspector_prom(struct sl_job *job, struct sl_read_in *in)
{
    struct file file = {.job = job, .rank = SL_JOB_NONE};
    uint64_t count = 0;
    int err = sl_prom_open(&file.prom, in);

    while (err == 0) {
        err = sl_prom_next(&file.prom);
        if (err <= 0)
            break;
        err = 0;
        if (strncmp(file.prom.name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        err = add_sample(&file);
        count++;
    }
    if (err == 0 && count == 0)
        err = sl_fail(-EBADMSG, "%s: no metric of NCCL Inspector is in it", in->name);
    sl_prom_close(&file.prom);
    return err;
}

const struct sl_read_format sl_read_inspector_prom = {
    .name = "NCCL Inspector for Prometheus", .is = is_inspector_prom, .read = read_inspector_prom};
