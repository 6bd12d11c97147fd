/* SPDX-License-Identifier: Apache-2.0 */
/* Which cases are to be kept, and the child that does it. */
#include "monitor/cluster/cases.h"

#include "monitor/child.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BATCH 256                       /* verdicts that a child keeps */
#define TRIES 3                         /* for one; then there is no case of it */
#define CHILD_NS UINT64_C(120000000000) /* it takes no longer */

/* What the child is given: the model, as it is when it begins. */
struct order {
    const struct sl_cases_options *options;
    struct sl_cluster_model *model;
    struct sl_cluster_judge judge;
    unsigned count;
    char ids[BATCH][SL_CLUSTER_ID];
    char jobs[BATCH][64]; /* by job */
    bool acts[BATCH];
};

struct answer {
    unsigned kept;
    int err;
    char why[256];
    bool is_kept[BATCH]; /* by place in the order */
};

struct sl_cases {
    struct sl_cases_options options;
    char folder[4096];
    struct sl_mon_child child;
    struct order order;
    struct sl_cases_counts counts;
    char said[256];
};

/* ---- in the child ---- */

static void keep_all(const void *arg, void *out)
{
    const struct order *order = arg;
    struct answer *answer = out;

    for (unsigned i = 0, end; i < order->count; i = end) {
        unsigned kept = 0;
        int err;

        for (end = i; end < order->count && strcmp(order->jobs[end], order->jobs[i]) == 0; end++)
            continue;
        err = sl_cases_keep(order->options, order->model, &order->judge, order->jobs[i],
                            &order->ids[i], end - i, &kept);
        for (unsigned k = i; k < end; k++)
            answer->is_kept[k] = err == 0;
        answer->kept += kept;
        if (err == 0)
            continue;
        answer->err = err;
        snprintf(answer->why, sizeof(answer->why), "%.250s", sluice_last_error());
    }
    sl_cases_bound(order->options);
}

/* ---- in the instance ---- */

static void say(struct sl_cases *cases, const char *why)
{
    if (strncmp(cases->said, why, sizeof(cases->said) - 1) == 0)
        return;
    snprintf(cases->said, sizeof(cases->said), "%s", why);
    cases->options.say(why);
}

static struct sl_book_entry *entry_of(struct sl_book *book, const char *id)
{
    unsigned low = 0, high = book->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = strcmp(book->list[middle].verdict.id, id);

        if (order == 0)
            return &book->list[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void poll_child(struct sl_cases *cases, struct sl_book *book)
{
    struct answer answer = {.kept = 0};
    int got;

    if (cases->child.pid == 0)
        return;
    got = sl_mon_child_poll(&cases->child, sl_mon_child_now(), &answer, sizeof(answer));
    if (got == 0)
        return;
    if (got < 0 || answer.err != 0)
        say(cases, got < 0 ? sluice_last_error() : answer.why);
    for (unsigned i = 0; i < cases->order.count; i++) {
        struct sl_book_entry *entry = entry_of(book, cases->order.ids[i]);

        cases->counts.failed += got < 0 || !answer.is_kept[i];
        if (entry == NULL)
            continue;
        entry->case_tries++;
        entry->has_case = entry->has_case || (got == 1 && answer.is_kept[i]);
        entry->has_case_of_act = got == 1 && answer.is_kept[i] && cases->order.acts[i];
    }
    cases->counts.kept += answer.kept;
}

/* Once when it opens, and once more when what came in makes it worth isolating the node. */
static bool is_wanted(const struct sl_book_entry *entry)
{
    if (!sl_book_is_open(entry) || entry->case_tries >= TRIES)
        return false;
    return !entry->has_case || (entry->verdict.act && !entry->has_case_of_act);
}

static int by_job(const void *a, const void *b)
{
    return strcmp((*(const struct sl_book_entry *const *)a)->verdict.job,
                  (*(const struct sl_book_entry *const *)b)->verdict.job);
}

static void fill(struct order *order, const struct sl_book *book)
{
    const struct sl_book_entry *wanted[BATCH];
    unsigned count = 0;

    for (unsigned i = 0; i < book->count && count < BATCH; i++)
        if (is_wanted(&book->list[i]))
            wanted[count++] = &book->list[i];
    if (count > 0)
        qsort(wanted, count, sizeof(*wanted), by_job);
    for (unsigned i = 0; i < count; i++) {
        memcpy(order->ids[i], wanted[i]->verdict.id, SL_CLUSTER_ID);
        memcpy(order->jobs[i], wanted[i]->verdict.job, sizeof(order->jobs[i]));
        order->acts[i] = wanted[i]->verdict.act;
    }
    order->count = count;
}

void sl_cases_tick(struct sl_cases *cases, struct sl_cluster_model *model,
                   const struct sl_cluster_judge *judge, struct sl_book *book)
{
    poll_child(cases, book);
    if (cases->folder[0] == '\0' || cases->child.pid != 0)
        return;
    fill(&cases->order, book);
    if (cases->order.count == 0)
        return;
    cases->order.options = &cases->options;
    cases->order.model = model;
    cases->order.judge = *judge;
    if (sl_mon_child_start(&cases->child, keep_all, &cases->order, sizeof(struct answer),
                           sl_mon_child_now() + CHILD_NS) != 0)
        say(cases, sluice_last_error());
}

int sl_cases_open(const struct sl_cases *cases, const char *id)
{
    char path[sizeof(cases->folder) + SL_CLUSTER_ID + 8];
    int fd;

    if (strspn(id, "0123456789abcdef") != SL_CLUSTER_ID - 1 || id[SL_CLUSTER_ID - 1] != '\0' ||
        cases->folder[0] == '\0')
        return -ENOENT;
    snprintf(path, sizeof(path), "%s/%s.case", cases->folder, id);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 ? fd : -errno;
}

struct sl_cases_counts sl_cases_counts(const struct sl_cases *cases)
{
    return cases->counts;
}

/* With the folders above it. */
static int make_folder(const char *folder)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s", folder);
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0755);
        *at = '/';
    }
    return mkdir(path, 0750) == 0 || errno == EEXIST ? 0 : -errno;
}

int sl_cases_new(const struct sl_cases_options *options, struct sl_cases **out)
{
    struct sl_cases *cases = calloc(1, sizeof(*cases));
    char why[512];
    int err;

    if (cases == NULL)
        return sl_fail(-ENOMEM, "no memory for cases");
    cases->options = *options;
    cases->child = (struct sl_mon_child)SL_MON_CHILD_INIT;
    snprintf(cases->folder, sizeof(cases->folder), "%s", options->folder);
    cases->options.folder = cases->folder;
    err = cases->folder[0] != '\0' ? make_folder(cases->folder) : 0;
    if (err != 0) {
        snprintf(why, sizeof(why),
                 "[cluster] cases: %.300s cannot be made, and no cases are kept: %s", cases->folder,
                 sluice_strerror(err));
        say(cases, why);
        cases->folder[0] = '\0';
    }
    *out = cases;
    return 0;
}

void sl_cases_free(struct sl_cases *cases)
{
    if (cases == NULL)
        return;
    sl_mon_child_kill(&cases->child);
    free(cases);
}
