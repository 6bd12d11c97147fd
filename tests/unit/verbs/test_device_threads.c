/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that open and close the same device, register with it and read its events, at once. */
#include "verbs/open_device.h"

#include "core/err.h"
#include "core/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#define THREADS 4
#define TURNS 2000
#define PORTS 2

/* A library of one device; thread safe as the real one is. */
static struct ibv_device the_device;
static _Atomic unsigned opens, contexts, domains, regions, raised, wrong;
static uint8_t memory[4 * 4096];

static struct ibv_device **get_list(int *count)
{
    struct ibv_device **list = calloc(2, sizeof(*list));

    sl_assert(list != NULL);
    list[0] = &the_device;
    *count = 1;
    return list;
}

static void free_list(struct ibv_device **list)
{
    free(list);
}

static const char *get_name(struct ibv_device *device)
{
    return device->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct ibv_context *context = calloc(1, sizeof(*context));

    sl_assert(context != NULL);
    context->device = device;
    context->async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
    sl_assert(context->async_fd >= 0);
    opens++;
    wrong += ++contexts > 1;
    return context;
}

static int close_device(struct ibv_context *context)
{
    contexts--;
    close(context->async_fd);
    free(context);
    return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    memset(attr, 0, sizeof(*attr));
    return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));

    sl_assert(pd != NULL);
    pd->context = context;
    domains++;
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    domains--;
    free(pd);
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    struct ibv_mr *mr = calloc(1, sizeof(*mr));

    (void)access;
    sl_assert(mr != NULL);
    *mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = len};
    regions++;
    return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
    regions--;
    free(mr);
    return 0;
}

/* Of ports, in turns. */
static int get_async_event(struct ibv_context *context, struct ibv_async_event *out)
{
    eventfd_t one;

    if (eventfd_read(context->async_fd, &one) != 0)
        return -1;
    out->event_type = IBV_EVENT_PORT_ERR;
    out->element.port_num = 1 + (int)(raised++ % PORTS);
    return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

static const struct sl_ibv table = {.ibv_get_device_list = get_list,
                                    .ibv_free_device_list = free_list,
                                    .ibv_get_device_name = get_name,
                                    .ibv_open_device = open_device,
                                    .ibv_close_device = close_device,
                                    .ibv_query_device = query_device,
                                    .ibv_alloc_pd = alloc_pd,
                                    .ibv_dealloc_pd = dealloc_pd,
                                    .ibv_reg_mr = reg_mr,
                                    .ibv_dereg_mr = dereg_mr,
                                    .ibv_get_async_event = get_async_event,
                                    .ibv_ack_async_event = ack_async_event};

/* ---- users ---- */

static void claim_and_return(struct sl_verbs_device *device, struct sl_rng *rng)
{
    struct sl_verbs_memory *from = &device->memory[sl_rng_below(rng, 2)];
    struct sl_verbs_claim claims[2] = {{NULL}};

    for (unsigned i = 0; i < 2; i++) {
        size_t off = sl_rng_below(rng, 4) * 4096;
        struct sl_mem mem = {.addr = memory + off, .len = 4096, .kind = SL_MEM_HOST, .fd = -1};

        wrong += sl_verbs_memory_get(from, &mem, &claims[i]) < 0;
        wrong += claims[i].mr == NULL || claims[i].mr->addr != mem.addr;
    }
    if (sl_rng_below(rng, 4) == 0)
        sl_verbs_device_mem_gone(device, memory + sl_rng_below(rng, 4) * 4096, 4096);
    for (unsigned i = 0; i < 2; i++)
        sl_verbs_memory_put(from, &claims[i]);
}

/* One life of an interface. */
static void use(struct sl_verbs_device *device, unsigned me, struct sl_rng *rng)
{
    struct sl_verbs_listener listener = {.port = 1 + me % PORTS};
    struct sl_verbs_event events[SL_VERBS_EVENTS_MAX];
    struct sl_verbs_range gone[SL_VERBS_GONE_MAX];
    struct ibv_pd *pd;
    bool overflowed;

    listener.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sl_verbs_device_listen(device, &listener);
    wrong += sl_verbs_device_pd(device, &pd) != 0;
    for (unsigned i = 0; i < 3; i++) {
        (void)eventfd_write(device->context->async_fd, sl_rng_below(rng, 3));
        claim_and_return(device, rng);
        unsigned count = sl_verbs_device_events(device, &listener, events, &overflowed);

        for (unsigned k = 0; k < count; k++)
            wrong += events[k].type != IBV_EVENT_PORT_ERR || events[k].subject != listener.port;
        wrong += count > 1 || overflowed;
        (void)sl_verbs_device_gone(device, &listener, gone);
    }
    sl_verbs_device_unlisten(device, &listener);
    close(listener.bell);
}

static void *live(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    struct sl_rng rng;

    sl_rng_init(&rng, me + 1);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        struct sl_verbs_device *device, *again = NULL;
        bool keeps = sl_rng_below(&rng, 3) == 0;

        if (keeps)
            sl_verbs_devices_keep();
        if (sl_verbs_device_get(&table, "a0", NULL, &device) != 0) {
            wrong++;
            return NULL;
        }
        use(device, me, &rng);
        wrong += sl_verbs_device_get(&table, "a0", &the_device, &again) != 0 || again != device;
        sl_verbs_device_put(again);
        sl_verbs_device_put(device);
        if (keeps)
            sl_verbs_devices_unkeep();
    }
    return NULL;
}

static void threads_share_one_device_and_leave_nothing(void **state)
{
    pthread_t threads[THREADS];

    strcpy(the_device.name, "a0");
    sl_ibv_replace(&table, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(wrong, 0);
    assert_in_range(opens, 1, THREADS * TURNS);
    assert_int_equal(contexts, 0);
    assert_int_equal(domains, 0);
    assert_int_equal(regions, 0);
    assert_true(raised > 0);
    sl_ibv_replace(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_one_device_and_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
