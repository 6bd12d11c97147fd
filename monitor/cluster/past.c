/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/past.h"

#include "monitor/read/read.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES_MAX ((size_t)64 << 20)

static int read_bytes(const char *path, struct sl_cluster_past *out)
{
    FILE *file = fopen(path, "re");
    struct stat stat;
    int err = 0;

    if (file == NULL)
        return sl_fail(-errno, "[cluster] history: %s cannot be opened: %s", path,
                       sluice_strerror(-errno));
    if (fstat(fileno(file), &stat) != 0 || stat.st_size < 0 || (size_t)stat.st_size > BYTES_MAX)
        err = sl_fail(-EFBIG, "[cluster] history: %s has more than %zu bytes", path, BYTES_MAX);
    if (err == 0) {
        out->at = stat.st_mtim;
        out->bytes = malloc((size_t)stat.st_size + 1);
        if (out->bytes == NULL)
            err = sl_fail(-ENOMEM, "no memory for %s", path);
        else
            out->len = fread(out->bytes, 1, (size_t)stat.st_size, file);
    }
    fclose(file);
    return err;
}

int sl_cluster_past_read(struct sl_cluster_past *past, const char *path)
{
    struct sl_cluster_past fresh = {.bytes = NULL};
    struct stat stat_of;
    int err;

    if (path[0] == '\0')
        return 0;
    if (past->bytes != NULL && stat(path, &stat_of) == 0 &&
        stat_of.st_mtim.tv_sec == past->at.tv_sec && stat_of.st_mtim.tv_nsec == past->at.tv_nsec)
        return 0;
    err = read_bytes(path, &fresh);
    if (err == 0) {
        fresh.job = sl_job_new();
        err = fresh.job == NULL ? sl_fail(-ENOMEM, "no memory for %s", path)
                                : sl_read_bytes(fresh.job, "history.json", fresh.bytes, fresh.len);
    }
    if (err != 0) {
        sl_cluster_past_fini(&fresh);
        return err;
    }
    sl_cluster_past_fini(past);
    *past = fresh;
    return 1;
}

void sl_cluster_past_fini(struct sl_cluster_past *past)
{
    free(past->bytes);
    sl_job_free(past->job);
    *past = (struct sl_cluster_past){.bytes = NULL};
}

static uint32_t text_of(const struct sl_cluster_past *past, uint32_t text, struct sl_job *job)
{
    const char *string = sl_job_string(past->job, text);

    return sl_job_text(job, string, strlen(string));
}

int sl_cluster_past_add(const struct sl_cluster_past *past, struct sl_job *job)
{
    int err = 0;

    if (past == NULL || past->job == NULL)
        return 0;
    for (size_t i = 0; i < past->job->fault_count && err == 0; i++) {
        struct sl_job_fault fault = past->job->faults[i];

        fault.host = text_of(past, fault.host, job);
        fault.cls = text_of(past, fault.cls, job);
        fault.text = text_of(past, fault.text, job);
        if (fault.host == SL_JOB_NONE || fault.cls == SL_JOB_NONE || fault.text == SL_JOB_NONE)
            return sl_fail(-ENOMEM, "no memory for the history of nodes");
        err = sl_job_add_fault(job, &fault);
    }
    return err;
}
