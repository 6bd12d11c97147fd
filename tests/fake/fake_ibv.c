/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libibverbs as a whole: made, ended, counted, made to fail, and what was misused. */
#include "tests/fake/fake_ibv_inside.h"

#include "core/err.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake_ibv *fake_ibv_the;

static pthread_mutex_t one_at_a_time = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static const char *const call_names[] = {
#define NAME(id, name) name,
    FAKE_IBV_CALLS(NAME)
#undef NAME
};

static const char *const kind_names[] = {"device list", "context", "TD", "PD",  "MR",
                                         "MW",          "channel", "CQ", "SRQ", "QP"};

int fake_enter_alone(void)
{
    return pthread_mutex_lock(&one_at_a_time);
}

void fake_leave(const int *alone)
{
    (void)alone;
    pthread_mutex_unlock(&one_at_a_time);
}

void fake_misuse(struct fake_ibv *fake, const char *fmt, ...)
{
    va_list args;

    if (fake->misuse[0] != '\0')
        return; /* what follows is often a consequence */
    va_start(args, fmt);
    vsnprintf(fake->misuse, sizeof(fake->misuse), fmt, args);
    va_end(args);
}

const char *fake_ibv_misuse(const struct fake_ibv *fake)
{
    FAKE_ALONE;
    return fake->misuse[0] != '\0' ? fake->misuse : NULL;
}

void fake_ibv_misuse_clear(struct fake_ibv *fake)
{
    FAKE_ALONE;
    fake->misuse[0] = '\0';
}

void *fake_obj_new_behind(struct fake_device *dev, enum fake_ibv_kind kind, size_t lead,
                          size_t size, size_t obj_off)
{
    char *memory = calloc(1, lead + size), *base = memory + lead;
    struct fake_obj *obj = (void *)(base + obj_off);

    struct fake_obj **all = kind == FAKE_IBV_MW ? &dev->fake->all_windows : &dev->fake->all;

    if (memory == NULL)
        abort();
    *obj = (struct fake_obj){.next = *all,
                             .memory = memory,
                             .base = base,
                             .dev = dev,
                             .kind = kind,
                             .generation = dev->generation,
                             .alive = true};
    *all = obj;
    dev->fake->live[kind]++;
    return base;
}

void *fake_obj_new(struct fake_device *dev, enum fake_ibv_kind kind, size_t size, size_t obj_off)
{
    return fake_obj_new_behind(dev, kind, 0, size, obj_off);
}

void fake_obj_end(struct fake_obj *obj)
{
    obj->alive = false;
    obj->dev->fake->live[obj->kind]--;
}

bool fake_obj_gone(const struct fake_obj *obj)
{
    return obj->dev->removed || obj->generation != obj->dev->generation;
}

int fake_fault(struct fake_ibv *fake, enum fake_ibv_call call)
{
    const unsigned which[] = {call, FAKE_IBV_CALL_COUNT};
    int error = 0;

    for (unsigned i = 0; i < 2; i++) {
        fake->calls[which[i]]++;
        if (fake->fail_nth[which[i]] != 0 && --fake->fail_nth[which[i]] == 0)
            error = fake->fail_error[which[i]];
    }
    return error;
}

int fake_enter_plain(struct fake_obj *obj, const char *call)
{
    if (!obj->alive) {
        fake_misuse(obj->dev->fake, "%s with a %s that was destroyed", call, kind_names[obj->kind]);
        return EINVAL;
    }
    return fake_obj_gone(obj) ? EIO : 0;
}

int fake_enter(struct fake_obj *obj, enum fake_ibv_call call)
{
    int error = fake_enter_plain(obj, call_names[call]);

    return error != 0 ? error : fake_fault(obj->dev->fake, call);
}

void fake_ibv_fail(struct fake_ibv *fake, enum fake_ibv_call call, unsigned nth, int error)
{
    FAKE_ALONE;
    fake->fail_nth[call] = nth;
    fake->fail_error[call] = error;
}

uint64_t fake_ibv_calls(const struct fake_ibv *fake, enum fake_ibv_call call)
{
    FAKE_ALONE;
    return fake->calls[call];
}

unsigned fake_ibv_live_of(const struct fake_ibv *fake, enum fake_ibv_kind kind)
{
    FAKE_ALONE;
    return fake->live[kind];
}

unsigned fake_ibv_live(const struct fake_ibv *fake)
{
    FAKE_ALONE;
    unsigned sum = 0;

    for (unsigned kind = 0; kind < FAKE_IBV_KIND_COUNT; kind++)
        sum += fake->live[kind];
    return sum;
}

static int fork_init(void)
{
    return 0;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
    static const char *const names[] = {[IBV_WC_SUCCESS] = "success",
                                        [IBV_WC_LOC_LEN_ERR] = "local length error",
                                        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
                                        [IBV_WC_LOC_PROT_ERR] = "local protection error",
                                        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
                                        [IBV_WC_MW_BIND_ERR] = "memory bind operation error",
                                        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
                                        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
                                        [IBV_WC_REM_OP_ERR] = "remote operation error",
                                        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
                                        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded"};

    if ((unsigned)status >= SL_ARRAY_LEN(names) || names[status] == NULL)
        return "unknown";
    return names[status];
}

static const char *event_type_str(enum ibv_event_type type)
{
    static const char *const names[] = {"CQ error",
                                        "local work queue catastrophic error",
                                        "invalid request local work queue error",
                                        "local access violation work queue error",
                                        "communication established",
                                        "send queue drained",
                                        "path migrated",
                                        "path migration request error",
                                        "local catastrophic error",
                                        "port active",
                                        "port error",
                                        "LID change",
                                        "P_Key change",
                                        "SM change",
                                        "SRQ catastrophic error",
                                        "SRQ limit reached",
                                        "last WQE reached",
                                        "client reregistration",
                                        "GID table change",
                                        "WQ fatal"};

    return (unsigned)type < SL_ARRAY_LEN(names) ? names[type] : "unknown";
}

static const char *port_state_str(enum ibv_port_state state)
{
    static const char *const names[] = {"PORT_NOP",   "PORT_DOWN",   "PORT_INIT",
                                        "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"};

    return (unsigned)state < SL_ARRAY_LEN(names) ? names[state] : "invalid state";
}

struct fake_ibv *fake_ibv_create(uint64_t seed)
{
    struct fake_ibv *fake = calloc(1, sizeof(*fake));

    if (fake == NULL)
        abort();
    sl_rng_init(&fake->rng, seed);
    fake->timeout_steps = 4;
    fake->rnr_steps = 2;
    fake->timeout_most = 1;
    fake->table.ibv_fork_init = fork_init;
    fake->table.ibv_wc_status_str = wc_status_str;
    fake->table.ibv_event_type_str = event_type_str;
    fake->table.ibv_port_state_str = port_state_str;
    fake_table_device(&fake->table);
    fake_table_object(&fake->table);
    fake_table_cq(&fake->table);
    fake_table_event(&fake->table);
    fake_table_qp(&fake->table);
    fake_table_mlx5(&fake->mlx5);
    fake_ibv_the = fake;
    return fake;
}

static void obj_free(struct fake_obj *obj)
{
    switch (obj->kind) {
    case FAKE_IBV_CONTEXT:
        if (obj->alive)
            fake_event_close(obj->base);
        break;
    case FAKE_IBV_MR: {
        struct fake_mr *mr = obj->base;

        if (obj->alive && mr->mapped != 0)
            munmap(mr->host - (mr->mapped - mr->ibv.length), mr->mapped);
        break;
    }
    case FAKE_IBV_CHANNEL: fake_channel_free(obj->base); break;
    case FAKE_IBV_CQ: free(FAKE_OF(fake_cq, obj->base)->ring); break;
    case FAKE_IBV_SRQ: fake_rq_fini(&FAKE_OF(fake_srq, obj->base)->rq); break;
    case FAKE_IBV_QP: fake_qp_free(obj->base); break;
    default: break;
    }
    free(obj->memory);
}

void fake_ibv_destroy(struct fake_ibv *fake)
{
    if (fake == NULL)
        return;
    while (fake->late != NULL) {
        struct fake_late *late = fake->late;

        fake->late = late->next;
        fake_late_drop(late);
    }
    for (struct fake_obj *obj = fake->all, *next; obj != NULL; obj = next) {
        next = obj->next;
        obj_free(obj);
    }
    for (struct fake_obj *obj = fake->all_windows, *next; obj != NULL; obj = next) {
        next = obj->next;
        obj_free(obj);
    }
    for (unsigned i = 0; i < fake->device_count; i++) {
        free(fake->devices[i]->qps);
        free(fake->devices[i]->mrs);
        free(fake->devices[i]->mws);
        free(fake->devices[i]);
    }
    if (fake_ibv_the == fake)
        fake_ibv_the = NULL;
    free(fake);
}

struct sl_ibv *fake_ibv_table(struct fake_ibv *fake)
{
    return &fake->table;
}

struct sl_mlx5dv *fake_ibv_mlx5(struct fake_ibv *fake)
{
    return &fake->mlx5;
}

uint64_t fake_ibv_now(const struct fake_ibv *fake)
{
    FAKE_ALONE;
    return fake->now;
}
