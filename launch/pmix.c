/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a PMIx server who we are and lets it carry rank 0's meeting place to the others. */
#include "launch/pmix.h"

#include "core/clock.h"
#include "core/err.h"

#include <dlfcn.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Every function of the library that we call. */
#define PMIX_CALLS(X)                                                                              \
    X(PMIx_Init)                                                                                   \
    X(PMIx_Finalize)                                                                               \
    X(PMIx_Put)                                                                                    \
    X(PMIx_Commit)                                                                                 \
    X(PMIx_Fence_nb)                                                                               \
    X(PMIx_Get)                                                                                    \
    X(PMIx_Error_string)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    PMIX_CALLS(MEMBER)
#undef MEMBER
} pmix;

static void *library;
static pmix_proc_t self;
static unsigned shared;

static int load(void)
{
    if (library != NULL)
        return 0;
    /* Global, since PMIx's own plugins look for its symbols; for good, since its thread may linger. */
    void *handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (handle == NULL)
        return sl_fail(-ENOTSUP, "libpmix.so.2 cannot be opened: %s", dlerror());
    struct {
        const char *name;
        void **slot;
    } calls[] = {
#define ROW(name) {#name, (void **)&pmix.name},
        PMIX_CALLS(ROW)
#undef ROW
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(calls); i++) {
        *calls[i].slot = dlsym(handle, calls[i].name);
        if (*calls[i].slot == NULL) {
            dlclose(handle);
            return sl_fail(-ENOTSUP, "libpmix.so.2 has no %s", calls[i].name);
        }
    }
    library = handle;
    return 0;
}

static int fail_pmix(pmix_status_t status, const char *doing)
{
    return sl_fail(status == PMIX_ERR_TIMEOUT ? -ETIMEDOUT : -ENODEV, "PMIx %s failed: %s", doing,
                   (pmix.PMIx_Error_string)(status));
}

/* A number that the server keeps about rank. -1: it does not say. */
static int ask_number(pmix_rank_t rank, const char *key)
{
    pmix_value_t *value = NULL;
    pmix_proc_t who = self;
    int number = -1;

    who.rank = rank;
    if ((pmix.PMIx_Get)(&who, key, NULL, 0, &value) != PMIX_SUCCESS || value == NULL)
        return -1;
    if (value->type == PMIX_UINT32 && value->data.uint32 <= INT32_MAX)
        number = (int)value->data.uint32;
    else if (value->type == PMIX_UINT16)
        number = value->data.uint16;
    free(value); /* a number holds no memory of its own */
    return number;
}

int sl_pmix_open(struct sl_pmix_self *out)
{
    int err = load();

    if (err != 0)
        return err;
    pmix_status_t status = (pmix.PMIx_Init)(&self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return fail_pmix(status, "start");
    out->rank = (int)self.rank;
    out->size = ask_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    out->local_rank = ask_number(self.rank, PMIX_LOCAL_RANK);
    out->local_size = ask_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
    if (out->size > 0)
        return 0;
    sl_pmix_close();
    return sl_fail(-ENODEV, "the PMIx server does not know how many ranks there are");
}

void sl_pmix_close(void)
{
    (pmix.PMIx_Finalize)(NULL, 0);
}

/* Asks a fence to bring along what was put before it, so that getting it asks nobody. */
static const pmix_info_t collect = {
    .key = PMIX_COLLECT_DATA,
    .value = {.type = PMIX_BOOL, .data = {.flag = true}},
};

/* A fence under way. When its deadline passes first, the library still holds it: then it is left
 * behind on purpose. */
struct fence {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int over;
    pmix_status_t status;
};

static void fence_ended(pmix_status_t status, void *arg)
{
    struct fence *fence = arg;

    pthread_mutex_lock(&fence->lock);
    fence->status = status;
    fence->over = 1;
    pthread_cond_signal(&fence->ended);
    pthread_mutex_unlock(&fence->lock);
}

static struct fence *fence_create(void)
{
    struct fence *fence = calloc(1, sizeof(*fence));
    pthread_condattr_t attr;

    if (fence == NULL)
        return NULL;
    pthread_mutex_init(&fence->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&fence->ended, &attr);
    pthread_condattr_destroy(&attr);
    return fence;
}

static void fence_destroy(struct fence *fence)
{
    pthread_cond_destroy(&fence->ended);
    pthread_mutex_destroy(&fence->lock);
    free(fence);
}

static int fence_all(uint64_t timeout_ms)
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + timeout_ms * SL_NS_PER_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ns / SL_NS_PER_S),
                             .tv_nsec = (long)(until_ns % SL_NS_PER_S)};
    struct fence *fence = fence_create();
    int timed_out = 0;

    if (fence == NULL)
        return sl_fail(-ENOMEM, "no memory to meet through PMIx");
    pmix_status_t status = (pmix.PMIx_Fence_nb)(NULL, 0, &collect, 1, fence_ended, fence);
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
        fence_destroy(fence);
        return fail_pmix(status, "fence");
    }
    pthread_mutex_lock(&fence->lock);
    while (status == PMIX_SUCCESS && !fence->over && timed_out == 0)
        timed_out = pthread_cond_timedwait(&fence->ended, &fence->lock, &until);
    if (fence->over)
        status = fence->status;
    timed_out = status == PMIX_SUCCESS && timed_out != 0 && !fence->over;
    pthread_mutex_unlock(&fence->lock);
    if (timed_out)
        return sl_fail(-ETIMEDOUT, "not every rank came to the PMIx fence within %.3g s; did all "
                                   "start?", (double)timeout_ms / 1000);
    fence_destroy(fence);
    return status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED ? 0
                                                                        : fail_pmix(status, "fence");
}

static int publish(const char *key, const char *text)
{
    pmix_value_t value = {.type = PMIX_STRING};
    char *copy = strdup(text);

    if (copy == NULL)
        return sl_fail(-ENOMEM, "no memory to meet through PMIx");
    value.data.string = copy;
    pmix_status_t status = (pmix.PMIx_Put)(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS)
        status = (pmix.PMIx_Commit)();
    free(copy);
    return status == PMIX_SUCCESS ? 0 : fail_pmix(status, "put");
}

static int fetch(const char *key, char *out, size_t cap)
{
    pmix_value_t *value = NULL;
    pmix_proc_t root = self;
    int err = 0;

    root.rank = 0;
    pmix_status_t status = (pmix.PMIx_Get)(&root, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS || value == NULL)
        return fail_pmix(status, "get of rank 0's meeting place");
    if (value->type != PMIX_STRING || value->data.string == NULL ||
        strlen(value->data.string) >= cap)
        err = sl_fail(-EPROTO, "PMIx gave something else than rank 0's meeting place");
    else
        memcpy(out, value->data.string, strlen(value->data.string) + 1);
    if (value->type == PMIX_STRING)
        free(value->data.string);
    free(value);
    return err;
}

int sl_pmix_share(const char *text, char *out, size_t cap, uint64_t timeout_ms)
{
    char key[64];
    int err = 0;

    /* A key is written once; the next communicator of this process takes the next. */
    snprintf(key, sizeof(key), "sluice.place.%u", shared++);
    if (text != NULL)
        err = publish(key, text);
    err = err ?: fence_all(timeout_ms);
    return err ?: fetch(key, out, cap);
}
