/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Law: the registration cache never hands out a registration of memory that went away, finds every
 * range that a live region covers and nothing else, keeps its limits, and deregisters each
 * registration once.
 *
 * Memory is modelled as bytes with a generation, which rises when a byte goes away. The fake device
 * remembers the generations that it pinned; what the cache hands out must have those of now. Beside
 * it stands a list of regions that is searched from one end to the other.
 */
#include "core/err.h"
#include "core/mem.h"
#include "core/rng.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/util/host_mem.h"

#define BASE UINT64_C(0x7f0000001000)
#define SPACE 192u /* bytes of the modelled memory */
#define CLAIMS 48u
#define SEEDS 6000u
#define STEPS 200u

/* What the fake device pinned. */
struct pinned {
    uintptr_t addr;
    size_t len;
    uint32_t generation[SPACE];
    bool alive;
};

struct claim {
    struct sl_mem_region *region; /* NULL: free place */
    uintptr_t addr;
    size_t len;
    uint32_t count;
    bool dead;
};

static struct {
    struct sl_rng rng;
    uint64_t seed;
    unsigned step;
    uint32_t generation[SPACE];
    struct pinned pinned[STEPS + 1];
    unsigned pinned_count, alive;
    unsigned refused;   /* times that the device refused in this step */
    uint64_t refuse_in; /* refuses once in so many; 0: never */
    struct claim claims[CLAIMS];
    struct sl_mem_cache cache;
} t;

static uint64_t found, missed, shared, died, refusals, hidden;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            fail_msg("seed %" PRIu64 " step %u: %s", t.seed, t.step, #x);                          \
    } while (0)

static int fake_reg(void *arg, const struct sl_mem *mem, void **out)
{
    struct pinned *p = &t.pinned[t.pinned_count];
    uintptr_t at = (uintptr_t)mem->addr;
    size_t len = mem->len;

    (void)arg;
    if (sl_rng_chance(&t.rng, t.refuse_in)) {
        t.refused++;
        return sl_fail(-ENOMEM, "refused");
    }
    CHECK(at >= BASE && at + len <= BASE + SPACE);
    *p = (struct pinned){.addr = at, .len = len, .alive = true};
    memcpy(p->generation, t.generation + (at - BASE), len * sizeof(p->generation[0]));
    t.pinned_count++;
    t.alive++;
    *out = p;
    return 0;
}

static void fake_dereg(void *arg, void *handle)
{
    struct pinned *p = handle;

    (void)arg;
    CHECK(p->alive);
    p->alive = false;
    t.alive--;
}

/* The device would touch today's memory through this. */
static void check_fresh(const struct pinned *p, uintptr_t addr, size_t len)
{
    CHECK(p->alive);
    CHECK(addr >= p->addr && addr + len <= p->addr + p->len);
    for (size_t i = 0; i < len; i++)
        CHECK(p->generation[addr - p->addr + i] == t.generation[addr - BASE + i]);
}

static bool covers(const struct claim *c, uintptr_t addr, size_t len)
{
    return c->region != NULL && !c->dead && c->addr <= addr && addr + len <= c->addr + c->len;
}

static bool overlaps(const struct claim *c, uintptr_t addr, size_t len)
{
    return c->region != NULL && c->addr < addr + len && addr < c->addr + c->len;
}

/* Mostly ranges that were seen before, moved by little: they overlap, contain and continue each
 * other. */
static void draw_range(uintptr_t *addr, size_t *len)
{
    const struct claim *near = &t.claims[sl_rng_below(&t.rng, CLAIMS)];
    uint64_t from = sl_rng_below(&t.rng, SPACE), size = sl_rng_range(&t.rng, 1, SPACE / 3);

    if (near->region != NULL && sl_rng_chance(&t.rng, 2) == 0) {
        from = near->addr - BASE;
        size = near->len;
        if (sl_rng_chance(&t.rng, 2)) {
            from += sl_rng_below(&t.rng, 5);
            size += sl_rng_below(&t.rng, 9);
            from -= from >= 2 ? 2 : 0;
            size -= size > 4 ? 4 : 0;
        }
    }
    if (from >= SPACE)
        from = SPACE - 1;
    *addr = BASE + from;
    *len = from + size > SPACE ? SPACE - from : size;
}

static void step_get(void)
{
    struct claim *place = NULL, *same = NULL, *cover = NULL;
    struct sl_mem_region *region = NULL;
    uint64_t made = t.cache.made;
    uintptr_t addr;
    size_t len;

    draw_range(&addr, &len);
    for (unsigned i = 0; i < CLAIMS; i++) {
        struct claim *c = &t.claims[i];

        if (c->region == NULL)
            place = c;
        if (covers(c, addr, len)) {
            cover = c;
            if (c->addr == addr && c->len == len)
                same = c;
        }
    }
    if (place == NULL)
        return;
    t.refused = 0;
    int err = get_host_mem(&t.cache, (void *)addr, len, &region);

    refusals += t.refused;
    if (err != 0) { /* only when the device refused, and then nothing changed */
        CHECK(err == -ENOMEM && t.refused > 0 && region == NULL && cover == NULL);
        return;
    }
    CHECK(region->addr == addr && region->len == len && !region->dead);
    check_fresh(region->handle, addr, len);
    CHECK(cover == NULL || t.cache.made == made);
    shared += t.cache.made == made;
    if (same != NULL) {
        CHECK(same->region == region);
        same->count++;
    } else {
        *place = (struct claim){.region = region, .addr = addr, .len = len, .count = 1};
    }
}

static void step_put(void)
{
    struct claim *c = &t.claims[sl_rng_below(&t.rng, CLAIMS)];

    if (c->region == NULL)
        return;
    CHECK(((struct pinned *)c->region->handle)->alive);
    sl_mem_cache_put(&t.cache, c->region);
    if (--c->count == 0)
        c->region = NULL;
}

static void step_find(void)
{
    bool expected = false;
    uintptr_t addr;
    size_t len;

    draw_range(&addr, &len);
    for (unsigned i = 0; i < CLAIMS; i++)
        expected |= covers(&t.claims[i], addr, len);
    struct sl_mem_region *region = sl_mem_cache_find(&t.cache, (void *)addr, len);

    CHECK((region != NULL) == expected);
    if (region == NULL) {
        missed++;
        return;
    }
    found++;
    CHECK(!region->dead && sl_mem_covers(region, addr, len));
    check_fresh(region->handle, addr, len);
}

static bool is_used(const struct pinned *p)
{
    for (unsigned i = 0; i < CLAIMS; i++)
        if (t.claims[i].region != NULL && t.claims[i].region->handle == p)
            return true;
    return false;
}

static void step_invalidate(void)
{
    unsigned expected = 0;
    uintptr_t addr;
    size_t len;

    draw_range(&addr, &len);
    for (size_t i = 0; i < len; i++)
        t.generation[addr - BASE + i]++;
    for (unsigned i = 0; i < CLAIMS; i++) {
        if (!overlaps(&t.claims[i], addr, len) || t.claims[i].dead)
            continue;
        t.claims[i].dead = true;
        expected++;
    }
    died += expected;
    CHECK(sl_mem_cache_invalidate(&t.cache, (void *)addr, len) == expected);
    /* What nobody uses is given up now, not when its turn comes. */
    for (unsigned i = 0; i < t.pinned_count; i++) {
        const struct pinned *p = &t.pinned[i];

        if (p->alive && p->addr < addr + len && addr < p->addr + p->len)
            CHECK(is_used(p));
    }
}

/* Memory that nobody claims goes away and nobody says so: allowed when nothing is kept. */
static void step_vanish(void)
{
    if (t.cache.keep_count != 0)
        return;
    for (unsigned at = 0; at < SPACE; at++) {
        bool claimed = false;

        for (unsigned i = 0; i < CLAIMS && !claimed; i++)
            claimed = overlaps(&t.claims[i], BASE + at, 1) && !t.claims[i].dead;
        if (!claimed) {
            t.generation[at]++;
            hidden++;
        }
    }
}

/* What the cache counts is what the device has; idle is what no claim stands on. */
static void check_counts(void)
{
    size_t bytes = 0, idle_bytes = 0;
    unsigned idle = 0;

    for (unsigned i = 0; i < t.pinned_count; i++) {
        const struct pinned *p = &t.pinned[i];
        bool used = p->alive && is_used(p);

        if (!p->alive)
            continue;
        bytes += p->len;
        idle_bytes += used ? 0 : p->len;
        idle += used ? 0 : 1;
    }
    CHECK(t.cache.count == t.alive && t.cache.bytes == bytes);
    CHECK(t.cache.idle_count == idle && t.cache.idle_bytes == idle_bytes);
    CHECK(idle <= t.cache.keep_count && idle_bytes <= t.cache.keep_bytes);
}

static void run_seed(uint64_t seed, bool keep)
{
    const struct sl_mem_device device = {.reg = fake_reg, .dereg = fake_dereg};
    unsigned in_use = 0;

    memset(&t, 0, sizeof(t));
    t.seed = seed;
    sl_rng_init(&t.rng, seed);
    t.refuse_in = sl_rng_chance(&t.rng, 3) ? 4 : 0;
    sl_mem_cache_init(&t.cache, &device, keep ? sl_rng_range(&t.rng, 1, 2 * SPACE) : 0,
                      keep ? (uint32_t)sl_rng_range(&t.rng, 1, 12) : 0);
    uint64_t puts = sl_rng_range(&t.rng, 15, 40), ends = sl_rng_range(&t.rng, 1, 8);

    for (t.step = 0; t.step < STEPS; t.step++) {
        uint64_t what = sl_rng_below(&t.rng, 100);

        if (what < 30)
            step_get();
        else if (what < 30 + puts)
            step_put();
        else if (what < 30 + puts + ends)
            step_invalidate();
        else if (what < 32 + puts + ends)
            step_vanish();
        else
            step_find();
        check_counts();
    }
    for (unsigned i = 0; i < CLAIMS; i++)
        in_use += t.claims[i].region != NULL;
    CHECK(sl_mem_cache_fini(&t.cache) == in_use);
    CHECK(t.alive == 0);
}

static void run_all(bool keep)
{
    found = missed = shared = died = refusals = hidden = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run_seed(seed, keep);
    printf("# %" PRIu64 " found, %" PRIu64 " rightly not; %" PRIu64
           " gets without a registration; %" PRIu64 " regions died; %" PRIu64 " refusals; %" PRIu64
           " bytes went silently\n",
           found, missed, shared, died, refusals, hidden);
    assert_true(found > SEEDS && missed > SEEDS && shared > SEEDS && died > SEEDS);
    assert_true(refusals > SEEDS / 8);
}

static void without_keeping_nothing_stale_is_found_even_when_memory_goes_silently(void **state)
{
    (void)state;
    run_all(false);
    assert_true(hidden > SEEDS);
}

static void with_keeping_nothing_stale_is_found_when_memory_that_goes_is_reported(void **state)
{
    (void)state;
    run_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_keeping_nothing_stale_is_found_even_when_memory_goes_silently),
        cmocka_unit_test(with_keeping_nothing_stale_is_found_when_memory_that_goes_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
