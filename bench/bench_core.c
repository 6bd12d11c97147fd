/* SPDX-License-Identifier: Apache-2.0 */
/* What core costs on the data path: a registered region found, memory that goes reported, an event
 * noted. usage: bench_core; each line is the median of 9 runs, in nanoseconds for one. */
#include "core/event.h"
#include "core/mem.h"
#include "core/rng.h"

#include <stdio.h>
#include <stdlib.h>

#define RUNS 9
#define TURNS 2000000u
#define REGIONS_MAX 4096u
#define STRIDE 0x10000u
#define START UINT64_C(0x7f0000000000)

static struct sl_mem_cache cache;
static struct sl_event_ring ring;
static struct sl_worker worker = {.clock = &sl_clock_monotonic, .events = &ring};
static uintptr_t places[1024];
static volatile uintptr_t keep;

static int fake_reg(void *arg, const struct sl_mem *mem, void **out)
{
    (void)arg;
    *out = mem->addr;
    return 0;
}

static void fake_dereg(void *arg, void *handle)
{
    (void)arg, (void)handle;
}

static void find_places(void)
{
    uintptr_t sum = 0;

    for (uint32_t i = 0; i < TURNS; i++)
        sum += (uintptr_t)sl_mem_cache_find(&cache, (void *)places[i % 1024], 64);
    keep = sum;
}

static void gone_elsewhere(void)
{
    unsigned sum = 0;

    for (uint32_t i = 0; i < TURNS; i++)
        sum += sl_mem_cache_invalidate(&cache, (void *)(places[i % 1024] + STRIDE / 2), 4096);
    keep = sum;
}

static void note(void)
{
    for (uint32_t i = 0; i < TURNS; i++)
        sl_event(&worker, SL_EVENT_PEER_LOST, 1, i, 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void time_it(const char *what, void (*run)(void))
{
    double ns[RUNS];

    for (unsigned i = 0; i < RUNS; i++) {
        uint64_t start = sl_now(&sl_clock_monotonic);

        run();
        ns[i] = (double)(sl_now(&sl_clock_monotonic) - start) / TURNS;
    }
    qsort(ns, RUNS, sizeof(ns[0]), by_value);
    printf("%-52s %6.1f (%.1f to %.1f)\n", what, ns[RUNS / 2], ns[0], ns[RUNS - 1]);
}

/* Regions of half a stride, so that the other half is known to nobody. */
static void with_regions(unsigned count)
{
    const struct sl_mem_device device = {.reg = fake_reg, .dereg = fake_dereg};
    struct sl_mem_region *region;
    struct sl_rng rng;
    char what[64];

    sl_rng_init(&rng, 1);
    sl_mem_cache_init(&cache, &device, 0, 0);
    for (unsigned i = 0; i < count; i++) {
        const struct sl_mem mem = {.addr = (void *)(START + i * (uintptr_t)STRIDE),
                                   .len = STRIDE / 2};

        if (sl_mem_cache_get_as(&cache, &mem, &region) != 0)
            exit(1);
    }
    for (unsigned i = 0; i < 1024; i++)
        places[i] = START + (i % 2) * STRIDE * (count > 1);
    snprintf(what, sizeof(what), "find, 2 of %u regions in turn", count);
    time_it(what, find_places);
    for (unsigned i = 0; i < 1024; i++)
        places[i] = START + sl_rng_below(&rng, count) * STRIDE;
    snprintf(what, sizeof(what), "find, any of %u regions", count);
    time_it(what, find_places);
    snprintf(what, sizeof(what), "invalidate, nothing known there, %u regions", count);
    time_it(what, gone_elsewhere);
    sl_mem_cache_fini(&cache);
}

int main(void)
{
    const unsigned counts[] = {1, 16, 256, REGIONS_MAX};

    for (unsigned i = 0; i < 4; i++)
        with_regions(counts[i]);
    time_it("event", note);
    return 0;
}
