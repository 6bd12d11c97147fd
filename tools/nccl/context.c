/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts and engines: made, driven, freed; and the target of log lines. */
#include "tools/nccl/adapt.h"
#include "tools/nccl/config.h"
#include "tools/nccl/flow.h"

#include "core/dl.h"
#include "core/log.h"
#include "core/registry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUDGET 64 /* requests that an interface may finish in one poll */
#define TIDY_LOOKS 256
#define TIMELY_POLLS 4 /* in one pass that has to be timely */

extern char **environ;

/* Guards the variables below and the users of engines; taken before an engine's own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node contexts = {&contexts, &contexts};
static struct sl_node engines = {&engines, &engines};
static uint64_t last_context;
static unsigned open_count;
static struct sl_nccl_ctx *fallback; /* of callers without one */
static struct sl_nccl_device_list *devices;

/* ---- log lines ---- */

static void to_nccl(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    sl_nccl_logger *logger = (sl_nccl_logger *)(uintptr_t)arg;

    (void)area;
    if (level <= SL_LOG_WARN)
        logger(SL_NCCL_LOG_WARN, SL_NCCL_SUB_NET, "sluice", 0, "Sluice %s", line);
    else
        logger(SL_NCCL_LOG_INFO, SL_NCCL_SUB_INIT | SL_NCCL_SUB_NET, "sluice", 0, "Sluice %s",
               line);
}

/* Without a setting of its own Sluice tells at info, and NCCL_DEBUG filters. */
static int log_to(sl_nccl_logger *logger, const struct sl_config *config)
{
    const char *own = getenv("SLUICE_LOG");
    bool set = own != NULL && own[0] != '\0';

    if (logger != NULL)
        sl_log_set_sink(to_nccl, (void *)(uintptr_t)logger);
    return sl_log_configure(set || logger == NULL ? config->log : "info");
}

/* ---- engines ---- */

static void on_ctrl(void *arg, struct sl_ep *ep, const void *msg, size_t len)
{
    (void)arg;
    if (ep->owner != NULL)
        sl_nccl_flow_hear(ep->owner, msg, len);
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    struct sl_nccl_engine *engine = arg;
    struct sl_nccl_flow *flow = ep->owner;

    if (flow != NULL && flow->number != 0) /* wire-up tries another transport */
        sl_wireup_lost(engine->wireup, flow->number, why);
    else if (flow != NULL)
        sl_nccl_flow_lose(flow, status, why);
}

static void allow_way(struct sl_nccl_engine *engine, const struct sl_transport_ops *ops,
                      const struct sl_device *device)
{
    if (engine->way_count < SL_NCCL_WAYS_HERE)
        engine->ways[engine->way_count++] = (struct sl_nccl_way){
            .id = device != NULL ? SL_NCCL_BY_DEVICE : ops->number, .ops = ops, .device = device};
    if (device != NULL)
        engine->by_device = ops->number;
}

/*
 * Which transports, in which order: those of one host; the device's own, on that device or as its
 * settings prefer it; and those that reach any host by any interface. A device whose GPU support
 * NCCL counts on is the only candidate: NCCL does not learn later which one a connection takes.
 */
static void allow_ways(struct sl_nccl_engine *engine, const struct sl_nccl_device *dev)
{
    const struct sl_transport_ops *list[SL_TRANSPORTS_MAX];
    unsigned count = 0;

    if (sl_transport_list(engine->config.transport, list, SL_TRANSPORTS_MAX, &count) != 0)
        count = 0; /* devices were found, so it was read before */
    for (unsigned i = 0; i < count; i++) {
        const struct sl_transport_ops *ops = list[i];
        bool own = ops->number == dev->ops->number;
        bool by_device = own && ops->prefer == NULL && (ops->traits & SL_TRAIT_LOCAL) == 0;

        if (dev->takes_gpu && !own)
            continue;
        if (by_device)
            allow_way(engine, ops, &engine->device);
        else if (own || (ops->traits & SL_TRAIT_LOCAL) != 0)
            allow_way(engine, ops, NULL);
        if ((!own || by_device) && (ops->traits & SL_TRAIT_SIDEBAND) != 0)
            allow_way(engine, ops, NULL);
    }
}

/* Of the secret, where there is one: no meeting makes a key for the job here. */
static int give_session(struct sl_worker *worker)
{
    worker->has_session = worker->config->secret[0] != '\0';
    return worker->has_session ? sl_session_derive(worker->config->secret, worker->session) : 0;
}

static bool is_shared(const struct sl_transport_ops *ops)
{
    return (ops->traits & SL_TRAIT_OFFLOAD) != 0;
}

static int engine_new(const struct sl_nccl_ctx *ctx, unsigned dev, int traffic_class,
                      struct sl_nccl_engine **out)
{
    struct sl_nccl_engine *engine = calloc(1, sizeof(*engine));
    const struct sl_nccl_device *device = &devices->items[dev];

    if (engine == NULL)
        return sl_fail(-ENOMEM, "no memory for device %u", dev);
    *engine = (struct sl_nccl_engine){.only = is_shared(device->ops) ? 0 : ctx->number,
                                      .life = ctx->life,
                                      .dev = dev,
                                      .traffic_class = traffic_class,
                                      .settings = ctx->config,
                                      .ops = device->ops,
                                      .device = device->found,
                                      .takes_gpu = device->takes_gpu,
                                      .config = ctx->config};
    pthread_mutex_init(&engine->lock, NULL);
    sl_list_init(&engine->comms);
    sl_list_init(&engine->listens);
    sl_list_init(&engine->flows);
    sl_list_init(&engine->saying);
    sl_list_init(&engine->backlog);
    if (device->ops->prefer != NULL)
        device->ops->prefer(&engine->config, &device->found, traffic_class);
    engine->worker =
        (struct sl_worker){.clock = &sl_clock_monotonic, .config = &engine->config, .rank = -1};
    if (give_session(&engine->worker) != 0) {
        pthread_mutex_destroy(&engine->lock);
        free(engine);
        return -ENOMEM;
    }
    sl_rng_init(&engine->worker.rng, sl_seed() ^ (uintptr_t)engine);
    allow_ways(engine, device);
    sl_list_push_back(&engines, &engine->link);
    *out = engine;
    return 0;
}

/*
 * NCCL asks only after requests that are not done. Once a receiver's are, it may not call again for
 * long, and a path that fails just then needs the receiver's count of arrivals: without it,
 * the sender's last requests would never end.
 */
static unsigned pass_over(struct sl_errand *errand)
{
    struct sl_nccl_engine *engine = sl_container_of(errand, struct sl_nccl_engine, errand);

    if (pthread_mutex_trylock(&engine->lock) != 0)
        return 0; /* NCCL is inside */
    while (engine->looks - engine->kept_looks <
           SL_LOOK_PASSES) /* but for those that NCCL has made */
        sl_nccl_progress(engine);
    engine->kept_looks = engine->timely_looks = engine->looks;
    pthread_mutex_unlock(&engine->lock);
    return 0;
}

/* Payload bytes that its interfaces have moved so far. */
static uint64_t traffic_of(const struct sl_nccl_engine *engine)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < engine->way_count; i++)
        bytes += engine->ways[i].iface != NULL ? engine->ways[i].iface->traffic : 0;
    return bytes;
}

/* Peers wait for what a transport answers only when it is polled. NCCL polls while it waits, and
 * then these passes leave it alone. */
static unsigned pass_timely(struct sl_errand *errand)
{
    struct sl_nccl_engine *engine = sl_container_of(errand, struct sl_nccl_engine, timely);
    bool is_alone;
    unsigned moved;

    if (pthread_mutex_trylock(&engine->lock) != 0)
        return SL_PASS_ELSEWHERE;
    is_alone = engine->timely_looks == engine->looks;
    for (unsigned i = 0; i < TIMELY_POLLS && is_alone; i++)
        sl_nccl_progress(engine);
    moved = traffic_of(engine) == engine->timely_traffic ? 0 : is_alone ? 1 : SL_PASS_ELSEWHERE;
    engine->timely_looks = engine->looks;
    engine->timely_traffic = traffic_of(engine);
    pthread_mutex_unlock(&engine->lock);
    return moved;
}

static void attach(struct sl_nccl_engine *engine, struct sl_errand *errand, enum sl_pace pace,
                   unsigned (*pass)(struct sl_errand *errand), const char *without)
{
    if (errand->attached)
        return;
    engine->kept_looks = engine->timely_looks = engine->looks;
    errand->pace = pace;
    errand->pass = pass;
    if (sl_runtime_attach(errand) != 0)
        sl_warn("nccl", "%s: %s", sluice_last_error(), without);
}

/* What the progress thread does for a transport that has just been opened. */
static void look_after(struct sl_nccl_engine *engine, uint32_t caps)
{
    if ((caps & SL_CAP_REPAIRS) != 0)
        attach(engine, &engine->errand, SL_PACE_LOOK, pass_over,
               "a path that fails while NCCL is idle is not mended before its next call");
    if ((caps & SL_CAP_TIMELY) != 0)
        attach(engine, &engine->timely, SL_PACE_TIMELY, pass_timely,
               "peers are answered in NCCL's calls alone");
}

static void engine_free(struct sl_nccl_engine *engine)
{
    sl_runtime_detach(&engine->timely);
    sl_runtime_detach(&engine->errand);
    sl_assert(sl_list_empty(&engine->comms));
    sl_list_foreach(&engine->flows, node)
        sl_nccl_flow_free(sl_container_of(node, struct sl_nccl_flow, link));
    for (unsigned i = 0; i < engine->way_count; i++)
        if (engine->ways[i].iface != NULL)
            engine->ways[i].ops->close(engine->ways[i].iface);
    sl_list_remove(&engine->link);
    pthread_mutex_destroy(&engine->lock);
    free(engine->why);
    free(engine);
}

static struct sl_nccl_way *find_way(struct sl_nccl_engine *engine, uint8_t id)
{
    for (unsigned i = 0; i < engine->way_count; i++)
        if (engine->ways[i].id == id)
            return &engine->ways[i];
    return NULL;
}

int sl_nccl_way_open(struct sl_nccl_engine *engine, uint8_t id, struct sl_nccl_way **out)
{
    struct sl_handler handler = {.ctrl = on_ctrl, .down = on_down, .arg = engine};
    struct sl_nccl_way *way = find_way(engine, id);

    if (way == NULL || way->out)
        return sl_fail(-ENOTSUP, "there is no such transport here");
    *out = way;
    if (way->iface != NULL)
        return 0;
    int err = way->ops->open(&engine->worker, way->device, &handler, &way->iface);

    if (err != 0) {
        way->iface = NULL;
        way->out = true;
        sl_info("nccl", "transport %s is out: %s", way->ops->name, sluice_last_error());
        return err;
    }
    look_after(engine, way->iface->caps);
    return 0;
}

uint32_t sl_nccl_ways(const struct sl_nccl_engine *engine, bool same_host, uint32_t by_device)
{
    uint32_t ways = 0;

    for (unsigned i = 0; i < engine->way_count; i++) {
        const struct sl_nccl_way *way = &engine->ways[i];

        if (!way->out && (same_host || (way->ops->traits & SL_TRAIT_LOCAL) == 0) &&
            (way->device == NULL || way->ops->number == by_device))
            ways |= 1u << way->id;
    }
    return ways;
}

/* An interface is lost with all that is on it. */
static void engine_lost(struct sl_nccl_engine *engine, const struct sl_nccl_way *way, int err)
{
    if (engine->error != 0)
        return;
    engine->error = err;
    sl_text_set(&engine->why, "transport %s is lost: %s", way->ops->name, sluice_last_error());
    sl_list_foreach(&engine->flows, node) sl_nccl_flow_lose(
        sl_container_of(node, struct sl_nccl_flow, link), err, sl_text_of(engine->why));
}

void sl_nccl_progress_once(struct sl_nccl_engine *engine, uint64_t *looks)
{
    if (*looks == engine->looks)
        sl_nccl_progress(engine);
    *looks = engine->looks;
}

void sl_nccl_progress(struct sl_nccl_engine *engine)
{
    engine->looks++;
    for (unsigned i = 0; i < engine->way_count; i++) {
        const struct sl_nccl_way *way = &engine->ways[i];

        if (way->iface == NULL)
            continue;
        int n = way->ops->progress(way->iface, BUDGET);

        if (SL_UNLIKELY(n < 0))
            engine_lost(engine, way, n);
    }
    sl_list_foreach(&engine->backlog, node)
        sl_nccl_comm_push(sl_container_of(node, struct sl_nccl_comm, waiting));
    if (SL_UNLIKELY(!sl_list_empty(&engine->saying)))
        sl_nccl_flows_say(engine);
    if (SL_UNLIKELY(engine->looks % TIDY_LOOKS == 0))
        sl_nccl_flows_tidy(engine);
}

/* May that context use it? None one that is lost. */
static bool is_for(const struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx)
{
    if (engine->error != 0)
        return false;
    if (engine->only != 0)
        return engine->only == ctx->number;
    return memcmp((const char *)&engine->settings, (const char *)&ctx->config,
                  sizeof(ctx->config)) == 0;
}

/* Numbers of devices may have changed since it was made. */
static bool is_of(const struct sl_nccl_engine *engine, const struct sl_nccl_device *device)
{
    return engine->ops->number == device->ops->number && engine->takes_gpu == device->takes_gpu &&
           strcmp(engine->device.name, device->found.name) == 0;
}

int sl_nccl_engine_get(struct sl_nccl_ctx *ctx, int dev, int traffic_class,
                       struct sl_nccl_engine **out)
{
    struct sl_nccl_engine *engine = NULL;
    int err = 0;

    if (!sl_fork_same(ctx->life))
        return sl_fork_refuse();
    pthread_mutex_lock(&lock);
    if (devices == NULL || dev < 0 || (unsigned)dev >= devices->count)
        err = sl_fail(-EINVAL, "there is no device %d", dev);
    if (err == 0)
        sl_list_foreach(&engines, node)
        {
            struct sl_nccl_engine *at = sl_container_of(node, struct sl_nccl_engine, link);

            if (at->traffic_class == traffic_class && is_of(at, &devices->items[dev]) &&
                is_for(at, ctx))
                engine = at;
        }
    if (err == 0 && engine == NULL)
        err = engine_new(ctx, (unsigned)dev, traffic_class, &engine);
    if (err == 0) {
        engine->users++;
        *out = engine;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* Frees engines that have no user, and that no open context could want. */
static void sweep(void)
{
    sl_list_foreach(&engines, node)
    {
        struct sl_nccl_engine *engine = sl_container_of(node, struct sl_nccl_engine, link);
        bool wanted = engine->users > 0;

        for (const struct sl_node *n = contexts.next; n != &contexts && !wanted; n = n->next)
            wanted = is_for(engine, sl_container_of(n, struct sl_nccl_ctx, link));
        if (!wanted)
            engine_free(engine);
    }
}

void sl_nccl_engine_hold(struct sl_nccl_engine *engine)
{
    pthread_mutex_lock(&lock);
    engine->users++;
    pthread_mutex_unlock(&lock);
}

void sl_nccl_engine_put(struct sl_nccl_engine *engine)
{
    pthread_mutex_lock(&lock);
    if (--engine->users == 0)
        sweep();
    pthread_mutex_unlock(&lock);
}

/* ---- contexts ---- */

/* Asks the transport, where this process uses a GPU at all: the one place that decides on NCCL's
 * memory kinds. */
static bool takes_gpu(const struct sl_config *config, const struct sl_transport_ops *ops)
{
    void *cuda = sl_nccl_config(config)->gpu != SL_OFF
                     ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)
                     : NULL;
    const struct sl_handler handler = {.ctrl = on_ctrl, .down = on_down};
    struct sl_worker worker = {.clock = &sl_clock_monotonic, .config = config, .rank = -1};
    struct sl_iface *iface;
    bool takes = false;

    if (cuda == NULL)
        return false;
    dlclose(cuda);
    sl_rng_init(&worker.rng, sl_seed());
    if (give_session(&worker) == 0 && ops->open(&worker, NULL, &handler, &iface) == 0) {
        takes = (iface->caps & SL_CAP_GPU) != 0;
        ops->close(iface);
    }
    if (!takes && sl_nccl_config(config)->gpu == SL_ON)
        sl_warn("nccl", "GPU memory goes through the host: transport %s does not take it here",
                ops->name);
    return takes;
}

/*
 * NCCL (2.32 and later) encrypts its own sockets when the program calls ncclSetEncryption(). It
 * does not tell plugins, and no variable does; a plugin sees that the function is there and that
 * OpenSSL, which it needs, is open.
 */
static void say_what_is_in_clear(const struct sl_config *config)
{
    bool may_encrypt =
        dlsym(RTLD_DEFAULT, "ncclSetEncryption") != NULL && sl_dl_is_loaded("libssl.so.3");

    if (config->tcp_tls == SL_ON)
        sl_info("nccl",
                "data over TCP is encrypted (TLS 1.3); over RDMA and in shared memory it is not");
    else if (may_encrypt)
        sl_warn("nccl", "data goes in clear: if this program has called ncclSetEncryption(), that "
                        "covers NCCL's own sockets and no plugin; set SLUICE_SECRET and "
                        "SLUICE_TCP_TLS=on to encrypt what goes over TCP");
    else
        sl_info(
            "nccl",
            "data goes in clear; SLUICE_SECRET and SLUICE_TCP_TLS=on encrypt what goes over TCP");
}

/* Anew where no context has the old ones. */
static int find_devices(const struct sl_config *config)
{
    struct sl_nccl_device_list *list;
    int err;

    if (open_count > 0)
        return 0;
    list = calloc(1, sizeof(*list));
    if (list == NULL)
        return sl_fail(-ENOMEM, "no memory to list devices");
    err = sl_nccl_devices_find(config, list);
    if (err != 0) {
        free(list);
        return err;
    }
    bool gpu = takes_gpu(config, list->items[0].ops);

    for (unsigned i = 0; i < list->count; i++)
        list->items[i].takes_gpu = gpu;
    free(devices);
    devices = list;
    return 0;
}

/* In a child: all contexts and engines are the parent's. */
static void forget_parents(void)
{
    pthread_mutex_init(&lock, NULL);
    sl_list_init(&contexts);
    sl_list_init(&engines);
    open_count = 0;
    fallback = NULL;
}

static int ctx_new(sl_nccl_logger *logger, int traffic_class, struct sl_nccl_ctx **out)
{
    struct sl_nccl_ctx *ctx = calloc(1, sizeof(*ctx));
    int err;

    if (ctx == NULL)
        return sl_fail(-ENOMEM, "no memory for a context");
    err = sl_nccl_start(&ctx->config, environ);
    if (err == 0)
        err = log_to(logger, &ctx->config);
    if (err == 0)
        err = find_devices(&ctx->config);
    if (err != 0) {
        free(ctx);
        return err;
    }
    if (open_count == 0)
        say_what_is_in_clear(&ctx->config);
    ctx->traffic_class = traffic_class;
    ctx->number = ++last_context;
    ctx->life = sl_fork_life();
    sl_fork_on_child(forget_parents);
    sl_list_push_back(&contexts, &ctx->link);
    open_count++;
    *out = ctx;
    return 0;
}

int sl_nccl_ctx_open(sl_nccl_logger *logger, int traffic_class, struct sl_nccl_ctx **out)
{
    int err;

    pthread_mutex_lock(&lock);
    err = ctx_new(logger, traffic_class, out);
    pthread_mutex_unlock(&lock);
    return err;
}

int sl_nccl_ctx_default(sl_nccl_logger *logger, struct sl_nccl_ctx **out)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    if (fallback == NULL)
        err = ctx_new(logger, SL_NCCL_UNDEFINED, &fallback);
    if (err == 0)
        *out = fallback;
    pthread_mutex_unlock(&lock);
    return err;
}

void sl_nccl_ctx_close(struct sl_nccl_ctx *ctx)
{
    if (ctx != NULL && !sl_fork_same(ctx->life))
        return; /* the parent's, who goes on with it */
    pthread_mutex_lock(&lock);
    if (ctx == NULL)
        ctx = fallback;
    if (ctx == fallback)
        fallback = NULL;
    if (ctx != NULL) {
        sl_list_remove(&ctx->link);
        open_count--;
        sl_list_foreach(&engines, node)
        {
            struct sl_nccl_engine *engine = sl_container_of(node, struct sl_nccl_engine, link);

            if (engine->only != 0 && engine->only != ctx->number)
                continue;
            sl_nccl_lock(engine);
            sl_nccl_dials_drop(engine, ctx);
            sl_nccl_listens_drop(engine, ctx);
            sl_nccl_unlock(engine);
        }
        free(ctx);
        sweep();
    }
    pthread_mutex_unlock(&lock);
}

int sl_nccl_devices(unsigned *count)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    if (devices == NULL)
        err = sl_fail(-EINVAL, "devices are asked for before init");
    else
        *count = devices->count;
    pthread_mutex_unlock(&lock);
    return err;
}

int sl_nccl_device(int dev, const struct sl_nccl_device **out)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    if (devices == NULL || dev < 0 || (unsigned)dev >= devices->count)
        err = sl_fail(-EINVAL, "there is no device %d", dev);
    else
        *out = &devices->items[dev];
    pthread_mutex_unlock(&lock);
    return err;
}
