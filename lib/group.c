/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: calls of one thread that start together. */
#include "lib/api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_MAX 65536

struct pending {
    struct sluice_operation *operation; /* persistent; NULL: the call is below */
    struct sluice_comm *comm;
    struct sl_call call;
    const void *in;
    void *out;
    struct sluice_req **req; /* the caller's, or NULL: waited for by the group's end */
    struct sluice_req *op;   /* once started */
};

_Thread_local unsigned sl_group_depth;

static _Thread_local struct {
    struct pending *calls; /* kept from group to group */
    size_t count, cap;
} group;

static pthread_key_t calls_key;
static pthread_once_t calls_once = PTHREAD_ONCE_INIT;
static bool calls_end; /* with their thread */

static void free_calls(void *calls)
{
    free(calls);
    group.calls = NULL; /* whatever else ends with the thread may make a group, too */
    group.count = group.cap = 0;
}

static void make_key(void)
{
    calls_end = pthread_key_create(&calls_key, free_calls) == 0;
}

static int grow(void)
{
    size_t cap = group.cap == 0 ? 16 : 2 * group.cap;

    if (cap > GROUP_MAX)
        return sl_fail(-EAGAIN, "a group holds at most %d calls", GROUP_MAX);
    struct pending *calls = realloc(group.calls, cap * sizeof(*calls));

    if (calls == NULL)
        return sl_fail(-ENOMEM, "no memory for a group of %zu calls", cap);
    group.calls = calls;
    group.cap = cap;
    pthread_once(&calls_once, make_key);
    if (calls_end)
        pthread_setspecific(calls_key, calls);
    return 0;
}

static int collect(const struct pending *pending)
{
    int err = group.count == group.cap ? grow() : 0;

    if (pending->req != NULL)
        *pending->req = NULL;
    if (err == 0)
        group.calls[group.count++] = *pending;
    return err;
}

int sl_group_collect(struct sluice_comm *comm, const struct sl_call *call, const void *in,
                     void *out, struct sluice_req **req)
{
    return collect(
        &(struct pending){.comm = comm, .call = *call, .in = in, .out = out, .req = req});
}

int sl_group_collect_operation(struct sluice_operation *operation, struct sluice_req **req)
{
    return collect(&(struct pending){.operation = operation, .comm = operation->comm, .req = req});
}

int sluice_group_start(void)
{
    sl_group_depth++;
    return 0;
}

/* Starts a call; a full communicator (-EAGAIN) is given time by finishing what this group started
 * and waits for itself. */
static int start(struct pending *p)
{
    int err = p->operation != NULL ? sl_operation_start_now(p->operation, &p->op)
                                   : sl_call_start(p->comm, &p->call, p->in, p->out, &p->op);

    if (err == 0 && p->req != NULL)
        *p->req = p->op;
    return err;
}

static int finish(struct pending *p)
{
    int err = p->op != NULL && p->req == NULL ? sluice_wait(p->op) : 0;

    if (p->op != NULL && p->req == NULL)
        sluice_req_free(p->op);
    p->op = NULL;
    return err;
}

static int finish_all(size_t count)
{
    int first = 0;

    for (size_t i = 0; i < count; i++) {
        int err = finish(&group.calls[i]);

        first = first != 0 ? first : err;
    }
    return first;
}

int sluice_group_end(void)
{
    int err = 0;
    size_t i;

    if (sl_group_depth == 0)
        return sl_fail(-EINVAL, "a group ends that was not started");
    if (--sl_group_depth != 0)
        return 0;
    for (i = 0; i < group.count && err == 0; i++) {
        group.calls[i].op = NULL;
        err = start(&group.calls[i]);
        if (err == -EAGAIN) {
            err = finish_all(i);
            if (err == 0)
                err = start(&group.calls[i]);
        }
    }
    int late = finish_all(i);

    group.count = 0;
    return err != 0 ? err : late;
}
