/* SPDX-License-Identifier: Apache-2.0 */
/* The gloo module's door: finds the originals, offers the functions that take calls, counts. */
#include "tools/preload/gloo_bridge.h"

#include "collectives/comm.h"
#include "lib/api.h"
#include "tools/preload/config.h"
#include "tools/preload/engine.h"
#include "tools/preload/preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sl_preload_host *host;
static bool own_timeout; /* SLUICE_TIMEOUT_MS is set */
struct sl_gloo_origin sl_gloo_here;

void sl_gloo_taken(enum sl_gloo_call call, uint64_t bytes, uint64_t ns)
{
    sl_preload_taken(host, call, bytes, ns);
}

void sl_gloo_passed(enum sl_gloo_call call)
{
    sl_preload_passed(host, call, SL_WHY_FORM);
}

void sl_gloo_alone(enum sl_gloo_call call)
{
    sl_preload_passed(host, call, SL_WHY_COMM);
}

void sl_gloo_no_engine(enum sl_gloo_call call)
{
    sl_preload_passed(host, call, SL_WHY_ENGINE);
}

void sl_gloo_note(const char *sentence)
{
    host->note(host, sentence);
}

uint64_t sl_gloo_now(void)
{
    return host->report ? sl_preload_now() : 0;
}

int sl_gloo_comm_create(int rank, int size, sl_gloo_allgather_fn *allgather, void *arg,
                        int64_t timeout_ms, struct sluice_comm **out)
{
    struct sl_preload_peers peers = {.rank = rank,
                                     .size = size,
                                     .arg = arg,
                                     .allgather = allgather,
                                     .timeout_ms = timeout_ms,
                                     .facts = (uint64_t)sluice_version() << 8 | sl_gloo_here.exact};

    host->rank(rank);
    return sl_preload_comm_create(&peers, out);
}

void sl_gloo_comm_timeout(struct sluice_comm *comm, int64_t timeout_ms)
{
    if (!own_timeout)
        comm->config.timeout_ms = timeout_ms;
}

const char *sl_gloo_name(enum sl_gloo_call call)
{
#define X(name, symbol) #name,
    static const char *const names[] = {SL_GLOO_CALLS(X)};
#undef X

    return names[call];
}

int sl_gloo_show(const struct sluice_comm *comm, enum sl_gloo_call call)
{
    return sl_comm_show_next(comm, sl_gloo_name(call), "waits for its turn");
}

void sl_gloo_hide(int place)
{
    sl_comm_hide_next(place);
}

int sl_preload_open(const struct sl_preload_host *given, void **take, unsigned count, char *why,
                    size_t cap);

SL_PRELOAD_EXPORT int sl_preload_open(const struct sl_preload_host *given, void **take,
                                      unsigned count, char *why, size_t cap)
{
    const char *timeout = getenv("SLUICE_TIMEOUT_MS");
    struct sl_preload_config config;

    if (given->abi != SL_PRELOAD_ABI || count != SL_GLOO_CALL_COUNT) {
        snprintf(why, cap, "libsluice-preload.so and its gloo module are of different versions");
        return -EPROTO;
    }
    host = given;
    own_timeout = timeout != NULL && timeout[0] != '\0';
    if (sl_preload_config_read(&config, environ) != 0) {
        snprintf(why, cap, "%s", sluice_last_error());
        return -EINVAL;
    }
    sl_gloo_here.exact = config.exact != SL_OFF;
    sl_gloo_here.create_buffer = given->find(given, "_ZN4gloo7Context19createUnboundBufferEPvm");
    sl_gloo_here.has_table = given->object(given, "_ZTVN4gloo7ContextE") != NULL;
    if (sl_gloo_here.create_buffer == NULL) {
        snprintf(why, cap, "the gloo of this program has no Context::createUnboundBuffer");
        return -ENOTSUP;
    }
#define X(call, symbol)                                                                            \
    sl_gloo_here.original[SL_GLOO_##call] = (void (*)(void *))given->find(given, #symbol);         \
    if (sl_gloo_here.original[SL_GLOO_##call] != NULL)                                             \
        take[SL_GLOO_##call] = (void *)sl_gloo_##call;
    SL_GLOO_CALLS(X)
#undef X
    atexit(sl_gloo_leave);
    return 0;
}
