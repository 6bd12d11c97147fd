/* SPDX-License-Identifier: Apache-2.0 */
/* One case into its files, and the folder within its bounds. */
#include "monitor/cluster/cases.h"

#include "monitor/cluster/case_lines.h"

#include "core/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 65536 /* that are looked at */

static void path_of(const struct sl_cases_options *options, const char *id, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%s.case", options->folder, id);
}

static bool has_verdict(const struct sl_case_result *result, const char *id)
{
    for (uint32_t i = 0; i < result->verdicts.count; i++)
        if (strcmp(result->verdicts.list[i].id, id) == 0)
            return true;
    return false;
}

/* The file is that of the first verdict; the others are names of it. */
static int write_all(const struct sl_cases_options *options, const struct sl_inputs *inputs,
                     const struct sl_case_options *of_case, const struct sl_case_result *result,
                     const char (*ids)[SL_CLUSTER_ID], unsigned count, unsigned *kept)
{
    char first[4096], path[4096];
    int err = 0;

    for (unsigned i = 0; i < count && err == 0; i++) {
        if (!has_verdict(result, ids[i]))
            continue;
        path_of(options, ids[i], path, sizeof(path));
        if (*kept == 0) {
            memcpy(first, path, sizeof(first));
            err = sl_case_write(inputs, of_case, result->text, result->len, path);
        } else {
            (void)unlink(path);
            if (link(first, path) != 0)
                err = sl_fail(-errno, "%s cannot be linked: %s", path, sluice_strerror(-errno));
        }
        *kept += err == 0;
    }
    return err;
}

static int read_lines(const struct sl_cases_options *options, struct sl_cluster_model *model,
                      const struct sl_cluster_judge *judge, const char *job,
                      struct sl_inputs *inputs)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    int err;

    if (out == NULL)
        return sl_fail(-ENOMEM, "no memory for a case");
    err = sl_cluster_case_lines(model, judge->silent_before_ns, job, out);
    if (fclose(out) != 0 && err == 0)
        err = sl_fail(-ENOMEM, "no memory for a case");
    if (err == 0 && len > options->bytes / 4)
        err = sl_fail(-EFBIG,
                      "the case of %s has %zu bytes, more than a quarter of [cluster] cases_bytes: "
                      "it is not kept",
                      job[0] != '\0' ? job : "the nodes", len);
    if (err == 0)
        err = sl_inputs_add(inputs, "observations.jsonl", text, len);
    if (err == 0 && judge->history != NULL && judge->history->bytes != NULL)
        err = sl_inputs_add(inputs, "history.json", judge->history->bytes, judge->history->len);
    free(text);
    return err;
}

int sl_cases_keep(const struct sl_cases_options *options, struct sl_cluster_model *model,
                  const struct sl_cluster_judge *judge, const char *job,
                  const char (*ids)[SL_CLUSTER_ID], unsigned count, unsigned *kept)
{
    const struct sl_case_options of_case = sl_cluster_case_options(judge, job);
    struct sl_inputs *inputs = sl_inputs_new();
    struct sl_case_result result = {.job = NULL};
    int err = inputs == NULL ? sl_fail(-ENOMEM, "no memory for a case") : 0;

    *kept = 0;
    if (err == 0)
        err = read_lines(options, model, judge, job, inputs);
    if (err == 0)
        err = sl_case_judge(inputs, &of_case, &result);
    if (err == 0)
        err = write_all(options, inputs, &of_case, &result, ids, count, kept);
    sl_case_result_free(&result);
    sl_inputs_free(inputs);
    return err;
}

/* ---- bounds ---- */

struct file {
    char name[SL_CLUSTER_ID + 5]; /* "0123456789abcdef.case" */
    struct timespec at;
    uint64_t bytes; /* of a file with several names each has its share */
};

static bool is_case_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == SL_CLUSTER_ID - 1 &&
           strcmp(name + SL_CLUSTER_ID - 1, ".case") == 0;
}

static int by_age(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    if (x->at.tv_sec != y->at.tv_sec)
        return x->at.tv_sec < y->at.tv_sec ? -1 : 1;
    if (x->at.tv_nsec != y->at.tv_nsec)
        return x->at.tv_nsec < y->at.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static unsigned list_files(DIR *folder, struct file **out)
{
    unsigned count = 0, cap = 0;
    struct dirent *entry;
    struct stat stat;

    *out = NULL;
    while (count < FILES_MAX && (entry = readdir(folder)) != NULL) {
        if (!is_case_name(entry->d_name) ||
            fstatat(dirfd(folder), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (count == cap) {
            struct file *more = reallocarray(*out, cap = cap == 0 ? 64 : 2 * cap, sizeof(*more));

            if (more == NULL)
                break;
            *out = more;
        }
        (*out)[count].at = stat.st_mtim;
        (*out)[count].bytes =
            (uint64_t)stat.st_size / (stat.st_nlink > 0 ? (uint64_t)stat.st_nlink : 1);
        memcpy((*out)[count++].name, entry->d_name, sizeof((*out)->name));
    }
    return count;
}

void sl_cases_bound(const struct sl_cases_options *options)
{
    DIR *folder = opendir(options->folder);
    struct file *files;
    unsigned count;
    uint64_t bytes = 0;

    if (folder == NULL)
        return;
    count = list_files(folder, &files);
    for (unsigned i = 0; i < count; i++)
        bytes += files[i].bytes;
    if (count > 0)
        qsort(files, count, sizeof(*files), by_age);
    for (unsigned i = 0, left = count; i < count; i++) {
        if (left <= options->count && bytes <= options->bytes)
            break;
        (void)unlinkat(dirfd(folder), files[i].name, 0);
        bytes -= files[i].bytes;
        left--;
    }
    free(files);
    closedir(folder);
}
