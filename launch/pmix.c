/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a PMIx server who we are and lets it carry rank 0's meeting place to the others. */
#include "launch/pmix.h"

#include "core/clock.h"
#include "core/err.h"

#include <dlfcn.h>
#include <pmix.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASK_AGAIN_MS 20
#define TEXT_MAX 1024

/* Every function of the library that we call. */
#define PMIX_CALLS(X)                                                                              \
    X(PMIx_Init)                                                                                   \
    X(PMIx_Finalize)                                                                               \
    X(PMIx_Put)                                                                                    \
    X(PMIx_Commit)                                                                                 \
    X(PMIx_Get)                                                                                    \
    X(PMIx_Get_nb)                                                                                 \
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
    /* Global, since PMIx's own plugins look for its symbols; for good, since its thread may
     * linger. */
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

/* A get under way. When its deadline passes first, the library still holds it, and it goes with the
 * answer. */
struct get {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over, fits;
    bool abandoned; /* nobody waits for the answer */
    pmix_status_t status;
    char text[TEXT_MAX];
};

static void get_destroy(struct get *get)
{
    pthread_cond_destroy(&get->ended);
    pthread_mutex_destroy(&get->lock);
    free(get);
}

static void get_ended(pmix_status_t status, pmix_value_t *value, void *arg)
{
    struct get *get = arg;

    pthread_mutex_lock(&get->lock);
    get->status = status;
    get->fits = status == PMIX_SUCCESS && value != NULL && value->type == PMIX_STRING &&
                value->data.string != NULL && strlen(value->data.string) < sizeof(get->text);
    if (get->fits)
        memcpy(get->text, value->data.string, strlen(value->data.string) + 1);
    get->over = true;
    bool abandoned = get->abandoned;
    pthread_cond_signal(&get->ended);
    pthread_mutex_unlock(&get->lock);
    if (abandoned)
        get_destroy(get);
}

static struct get *get_create(void)
{
    struct get *get = calloc(1, sizeof(*get));
    pthread_condattr_t attr;

    if (get == NULL)
        return NULL;
    pthread_mutex_init(&get->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&get->ended, &attr);
    pthread_condattr_destroy(&attr);
    return get;
}

/* Asks once. 0: the library has answered, and *status tells what. */
static int get_once(const char *key, uint64_t until_ns, pmix_status_t *status, char *out,
                    size_t cap)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / SL_NS_PER_S),
                             .tv_nsec = (long)(until_ns % SL_NS_PER_S)};
    struct get *get = get_create();
    pmix_proc_t root = self;
    int timed_out = 0, err = 0;

    if (get == NULL)
        return sl_fail(-ENOMEM, "no memory to meet through PMIx");
    root.rank = 0;
    *status = (pmix.PMIx_Get_nb)(&root, key, NULL, 0, get_ended, get);
    if (*status != PMIX_SUCCESS) { /* it will not call back */
        get_destroy(get);
        return 0;
    }
    pthread_mutex_lock(&get->lock);
    while (!get->over && timed_out == 0)
        timed_out = pthread_cond_timedwait(&get->ended, &get->lock, &until);
    bool over = get->over;
    get->abandoned = !over;
    pthread_mutex_unlock(&get->lock);
    if (!over)
        return -ETIMEDOUT;
    *status = get->status;
    if (*status == PMIX_SUCCESS && (!get->fits || strlen(get->text) >= cap))
        err = sl_fail(-EPROTO, "PMIx gave something else than rank 0's meeting place");
    else if (*status == PMIX_SUCCESS)
        memcpy(out, get->text, strlen(get->text) + 1);
    get_destroy(get);
    return err;
}

/*
 * The server keeps the question until rank 0 has put its place, or, if rank 0 has put other things
 * before, says that there is no such key: then it is asked again. There is no fence: Open MPI's
 * server makes its processes known one by one as it starts them, and a fence that is entered before
 * all are known ends without the rest, who then wait in another.
 */
static int fetch(const char *key, char *out, size_t cap, uint64_t timeout_ms)
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + timeout_ms * SL_NS_PER_MS;
    pmix_status_t status = PMIX_ERR_TIMEOUT;

    for (;;) {
        int err = get_once(key, until_ns, &status, out, cap);

        if (err == -ETIMEDOUT ||
            (err == 0 && status != PMIX_SUCCESS && sl_now(&sl_clock_monotonic) >= until_ns))
            return sl_fail(
                -ETIMEDOUT,
                "PMIx had no meeting place of rank 0 within %.3g s (%s); did rank 0 start?",
                (double)timeout_ms / 1000, (pmix.PMIx_Error_string)(status));
        if (err != 0 || status == PMIX_SUCCESS)
            return err;
        poll(NULL, 0, ASK_AGAIN_MS);
    }
}

int sl_pmix_share(const char *text, char *out, size_t cap, uint64_t timeout_ms)
{
    char key[64];

    /* A key is written once; the next communicator of this process takes the next. */
    snprintf(key, sizeof(key), "sluice.place.%u", shared++);
    if (text == NULL)
        return fetch(key, out, cap, timeout_ms);
    if (strlen(text) >= cap)
        return sl_fail(-EINVAL, "a meeting place of %zu bytes", strlen(text));
    if (out != text)
        memcpy(out, text, strlen(text) + 1);
    return publish(key, text);
}
