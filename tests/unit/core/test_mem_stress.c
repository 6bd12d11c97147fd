/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that overlap, grow, shrink and go, in real memory: for the address sanitizer, and for
 * unmapped pages to be touched. Each page carries the number of its mapping, as its frame would;
 * the fake device notes those numbers when it registers, touches every page when it is used, and
 * compares. So an address that was unmapped and mapped again (which the kernel does at once) is
 * told from the old one.
 */
#include "core/err.h"
#include "core/mem.h"
#include "core/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "tests/util/host_mem.h"

#define PAGE 4096u
#define PAGES_MAX 24u
#define BUFFERS 12u
#define CLAIMS 6u
#define STEPS 40000u

struct pinned {
    uint8_t *addr;
    size_t len;
    uint64_t frames[PAGES_MAX + 1]; /* by page that the range touches */
};

struct buffer {
    uint8_t *addr;
    size_t len;
    bool mapped; /* by mmap, not malloc */
    struct sl_mem_region *claims[CLAIMS];
};

static struct sl_rng rng;
static struct sl_mem_cache cache;
static struct buffer buffers[BUFFERS];
static uint8_t *unmapped;
static uint64_t next_frame, uses, same_address;
static unsigned pinned_count;

/* Where the number of the page with addr stands: at its start, or at the buffer's on its first
 * page. */
static uint64_t frame_of(const uint8_t *addr)
{
    const struct buffer *b = buffers;
    uint64_t frame;

    while (b->addr == NULL || addr < b->addr || addr >= b->addr + b->len)
        assert_true(++b < buffers + BUFFERS);
    const uint8_t *page = b->addr + (size_t)(addr - b->addr) / PAGE * PAGE;

    memcpy(&frame, page, sizeof(frame));
    return frame;
}

static int fake_reg(void *arg, const struct sl_mem *mem, void **out)
{
    struct pinned *p = calloc(1, sizeof(*p));
    size_t i = 0;

    (void)arg;
    assert_non_null(p);
    p->addr = mem->addr;
    p->len = mem->len;
    for (size_t off = 0; off < mem->len; off += PAGE)
        p->frames[i++] = frame_of(p->addr + off);
    p->frames[i] = frame_of(p->addr + mem->len - 1);
    pinned_count++;
    *out = p;
    return 0;
}

static void fake_dereg(void *arg, void *handle)
{
    (void)arg;
    pinned_count--;
    free(handle);
}

/* What the device would do: read and write the range through what it pinned. */
static void use(const struct sl_mem_region *region, uint8_t *addr, size_t len)
{
    const struct pinned *p = region->handle;

    assert_true(p->addr <= addr && addr + len <= p->addr + p->len);
    for (size_t off = 0; off < len; off++)
        if (off % PAGE == 0 || off == len - 1)
            ((volatile uint8_t *)addr)[off] = ((volatile uint8_t *)addr)[off];
    for (size_t off = 0; off < p->len; off += PAGE) {
        if (p->addr + off >= addr && p->addr + off < addr + len)
            assert_int_equal(p->frames[off / PAGE], frame_of(p->addr + off));
    }
    uses++;
}

static void number_pages(struct buffer *b)
{
    for (size_t off = 0; off < b->len; off += PAGE) {
        uint64_t frame = ++next_frame;

        memcpy(b->addr + off, &frame, sizeof(frame));
    }
}

static void make(struct buffer *b, size_t len)
{
    b->mapped = sl_rng_chance(&rng, 2);
    b->len = len;
    /* Where the last one was unmapped, if that is free: kernels and allocators do so by
     * themselves. */
    b->addr = b->mapped
                  ? mmap(unmapped, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : malloc(len);
    assert_true(b->addr != NULL && b->addr != MAP_FAILED);
    same_address += b->addr == unmapped;
    number_pages(b);
}

static void put_all(struct buffer *b)
{
    for (unsigned i = 0; i < CLAIMS; i++) {
        sl_mem_cache_put(&cache, b->claims[i]);
        b->claims[i] = NULL;
    }
}

/* Reported only where the cache keeps: without, it must do without. */
static void gone(struct buffer *b)
{
    if (cache.keep_count > 0)
        assert_int_equal(sl_mem_cache_invalidate(&cache, b->addr, b->len), 0);
}

static void give_back(struct buffer *b)
{
    put_all(b);
    gone(b);
    if (b->mapped) {
        munmap(b->addr, b->len);
        unmapped = b->addr;
    } else {
        free(b->addr);
    }
    b->addr = NULL;
}

/* Everything behind the buffer's claims may move. */
static void resize(struct buffer *b, size_t len)
{
    uint8_t *moved;

    put_all(b);
    gone(b);
    moved = b->mapped ? mremap(b->addr, b->len, len, MREMAP_MAYMOVE) : realloc(b->addr, len);
    assert_true(moved != NULL && moved != MAP_FAILED);
    b->addr = moved;
    b->len = len;
    number_pages(b);
}

static void draw(const struct buffer *b, uint8_t **addr, size_t *len)
{
    size_t from = (size_t)sl_rng_below(&rng, b->len);

    if (sl_rng_chance(&rng, 2))
        from = 0;
    *addr = b->addr + from;
    *len = sl_rng_chance(&rng, 2) ? b->len - from : (size_t)sl_rng_range(&rng, 1, b->len - from);
}

static void step(struct buffer *b)
{
    size_t want = (size_t)sl_rng_range(&rng, sizeof(uint64_t), PAGES_MAX * PAGE), len;
    uint64_t what = sl_rng_below(&rng, 100);
    unsigned slot = (unsigned)sl_rng_below(&rng, CLAIMS);
    uint8_t *addr;

    want -= want % PAGE < sizeof(uint64_t) ? want % PAGE : 0; /* room for the last page's number */
    want += want == 0 ? PAGE : 0;
    if (b->addr == NULL) {
        make(b, want);
        return;
    }
    draw(b, &addr, &len);
    if (what < 3) {
        give_back(b);
    } else if (what < 8) {
        resize(b, want);
    } else if (what < 30) {
        sl_mem_cache_put(&cache, b->claims[slot]);
        b->claims[slot] = NULL;
        assert_int_equal(get_host_mem(&cache, addr, len, &b->claims[slot]), 0);
        use(b->claims[slot], addr, len);
    } else if (what < 40) {
        sl_mem_cache_put(&cache, b->claims[slot]);
        b->claims[slot] = NULL;
    } else {
        const struct sl_mem_region *region = sl_mem_cache_find(&cache, addr, len);

        if (region != NULL)
            use(region, addr, len);
    }
}

static void run(size_t keep_bytes, uint32_t keep_count)
{
    const struct sl_mem_device device = {.reg = fake_reg, .dereg = fake_dereg};

    uses = same_address = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        sl_rng_init(&rng, seed);
        sl_mem_cache_init(&cache, &device, keep_bytes, keep_count);
        for (unsigned i = 0; i < STEPS; i++)
            step(&buffers[sl_rng_below(&rng, BUFFERS)]);
        for (unsigned i = 0; i < BUFFERS; i++)
            if (buffers[i].addr != NULL)
                give_back(&buffers[i]);
        assert_int_equal(sl_mem_cache_fini(&cache), 0);
        assert_int_equal(pinned_count, 0);
    }
    printf("# %llu uses; %llu mappings came back at the address of the one before\n",
           (unsigned long long)uses, (unsigned long long)same_address);
    assert_true(uses > STEPS && same_address > 500);
}

static void real_memory_is_never_used_after_it_went_though_nobody_says_that_it_goes(void **state)
{
    (void)state;
    run(0, 0);
}

static void kept_registrations_are_never_used_after_their_memory_went(void **state)
{
    (void)state;
    run(64 * PAGE, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_memory_is_never_used_after_it_went_though_nobody_says_that_it_goes),
        cmocka_unit_test(kept_registrations_are_never_used_after_their_memory_went),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
