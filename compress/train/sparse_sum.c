/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of sparse vectors, gathered or by regions. */
#include "compress/train/sparse_sum.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 8 /* bytes of a block before its message: how many that has */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t round16(size_t len)
{
    return (len + 15) & ~(size_t)15;
}

/* A sum loses nothing. */
static struct sl_sparse_spec of_sums(const struct sl_sparse_sum *s)
{
    return (struct sl_sparse_spec){.rice = s->spec.rice};
}

/* Entries of a region, of all ranks, that there is room for. */
static size_t region_most(const struct sl_sparse_sum *s)
{
    return 2 * s->most < s->count ? 2 * s->most : s->count;
}

static uint32_t points(const struct sl_sparse_sum *s)
{
    return 2 * s->net->ranks; /* of each rank */
}

void sl_sparse_sum_lay(struct sl_sparse_sum *s, const struct sl_net *net,
                       const struct sl_sparse_spec *spec, size_t count, size_t most,
                       struct sl_room *room)
{
    size_t ranks = net->ranks, largest;

    *s = (struct sl_sparse_sum){
        .net = net, .spec = *spec, .count = count, .most = most < count ? most : count};
    struct sl_sparse_spec sums = of_sums(s);

    s->block = round16(sl_sparse_bound(spec, count, s->most) + HEAD);
    largest = larger(s->block, sl_sparse_bound(&sums, count, region_most(s)));
    sl_messages_lay(&s->messages, net, largest, room);
    s->blocks = sl_room_take(room, ranks * s->block);
    s->cuts = sl_room_take(room, ranks * (points(s) + 1) * sizeof(*s->cuts));
    s->starts = sl_room_take(room, (ranks + 1) * sizeof(*s->starts));
    s->counts = sl_room_take(room, ranks * ranks * sizeof(*s->counts));
    s->places = sl_room_take(room, (region_most(s) + s->most) * sizeof(*s->places));
    s->value = sl_room_floats(room, region_most(s));
}

/* ---- regions ---- */

static int by_index(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Takes what rank 0 knows of the last sum, whatever this rank does: it may have begun anew, and the
 * others not. Of all ranks, the points are left. */
static void agree_on_overlap(struct sl_sparse_sum *s)
{
    size_t each = points(s);

    memcpy(&s->overlap, s->cuts + each, sizeof(s->overlap));
    if (!(s->overlap >= 0 && s->overlap <= 1))
        s->overlap = 0;
    for (uint32_t r = 1; r < s->net->ranks; r++)
        memmove(s->cuts + r * each, s->cuts + r * (each + 1), each * sizeof(*s->cuts));
}

/* Cuts the vector where all ranks' points are cut into equal parts. A rank without entries has its
 * points anywhere. */
static int agree_on_regions(struct sl_sparse_sum *s, const uint32_t *index, size_t kept)
{
    uint32_t ranks = s->net->ranks, each = points(s), *own = (uint32_t *)(void *)s->blocks;

    for (uint64_t i = 0; i < each; i++)
        own[i] = kept > 0 ? index[i * kept / each] : (uint32_t)(i * s->count / each);
    memcpy(own + each, &s->overlap, sizeof(s->overlap));
    int err = s->net->gather(s->net->arg, own, (each + 1) * sizeof(*own), s->cuts);

    if (err != 0)
        return err;
    agree_on_overlap(s);
    qsort(s->cuts, (size_t)ranks * each, sizeof(*s->cuts), by_index);
    s->starts[0] = 0;
    for (uint32_t w = 1; w < ranks; w++) {
        uint32_t cut = s->cuts[(size_t)w * each];

        s->starts[w] = cut < s->count ? cut : (uint32_t)s->count;
    }
    s->starts[ranks] = (uint32_t)s->count;
    return 0;
}

/* Entries of the rank's, sorted, below a limit. */
static size_t below(const uint32_t *index, size_t kept, uint32_t limit)
{
    size_t low = 0;

    while (low < kept) {
        size_t middle = low + (kept - low) / 2;

        if (index[middle] < limit)
            low = middle + 1;
        else
            kept = middle;
    }
    return low;
}

static int tell_counts(struct sl_sparse_sum *s, const uint32_t *index, size_t kept)
{
    uint32_t ranks = s->net->ranks, *own = (uint32_t *)(void *)s->blocks;
    size_t before = 0;

    for (uint32_t w = 0; w < ranks; w++) {
        size_t end = w + 1 < ranks ? below(index, kept, s->starts[w + 1]) : kept;

        own[w] = (uint32_t)(end - before);
        before = end;
    }
    int err = s->net->gather(s->net->arg, own, ranks * sizeof(*own), s->counts);

    if (err == 0 &&
        memcmp(own, s->counts + (size_t)s->net->rank * ranks, ranks * sizeof(*own)) != 0)
        err = sl_fail(-EBADMSG, "the network gave another rank's counts for those of rank %u",
                      s->net->rank);
    for (uint32_t r = 0; err == 0 && r < ranks; r++) {
        uint64_t all = 0;

        for (uint32_t w = 0; w < ranks; w++)
            all += s->counts[r * ranks + w];
        if (all > s->most)
            err = sl_fail(-EBADMSG,
                          "rank %u says that it keeps %llu elements, where %zu are the "
                          "most",
                          r, (unsigned long long)all, s->most);
    }
    return err;
}

static size_t region_len(const struct sl_sparse_sum *s, uint32_t w)
{
    return s->starts[w + 1] - s->starts[w];
}

/* What all ranks know of their entries. */
struct figures {
    uint64_t entries;      /* of all */
    size_t region;         /* in the region that has most */
    size_t message, block; /* bytes, of the longest: a rank's, a rank's part of a region */
    double sum;            /* bytes, predicted: of the sum of the region that has most */
};

static struct figures look(const struct sl_sparse_sum *s)
{
    struct sl_sparse_spec sums = of_sums(s);
    uint32_t ranks = s->net->ranks;
    struct figures f = {0};

    for (uint32_t r = 0; r < ranks; r++) {
        size_t kept = 0;

        for (uint32_t w = 0; w < ranks; w++) {
            size_t here = s->counts[r * ranks + w];

            kept += here;
            f.block = larger(f.block, sl_sparse_bound(&s->spec, region_len(s, w), here));
        }
        f.entries += kept;
        f.message = larger(f.message, sl_sparse_bound(&s->spec, s->count, kept));
    }
    f.block = round16(f.block + HEAD);
    for (uint32_t w = 0; w < ranks; w++) {
        size_t all = 0;

        for (uint32_t r = 0; r < ranks; r++)
            all += s->counts[r * ranks + w];
        f.region = larger(f.region, all);
        all = (size_t)((double)all * (double)s->overlap) + 1;
        double bytes = (double)sl_sparse_bound(&sums, region_len(s, w), all);

        f.sum = bytes > f.sum ? bytes : f.sum;
    }
    return f;
}

/* Bytes of each other rank. */
static bool regions_send_less(const struct sl_sparse_sum *s, const struct figures *f)
{
    return s->overlap > 0 && f->region <= region_most(s) &&
           (double)f->block + f->sum < (double)f->message;
}

/* ---- the two ways ---- */

static int gathered(struct sl_sparse_sum *s, const uint32_t *index, const float *value, size_t kept,
                    float *out)
{
    int err;

    s->sent = sl_sparse_write(&s->spec, index, value, kept, s->count, s->messages.own);
    err = sl_messages_gather(&s->messages, s->sent);
    for (uint32_t w = 0; err == 0 && w < s->net->ranks; w++)
        err = sl_sparse_add(&s->spec, sl_messages_of(&s->messages, w), s->messages.lens[w],
                            s->count, out);
    return err;
}

/* Each owner's part of this rank's entries, in blocks of len bytes. */
static int give(struct sl_sparse_sum *s, const uint32_t *index, const float *value, size_t len)
{
    uint32_t *places = s->places + region_most(s);
    const uint32_t *counts = s->counts + (size_t)s->net->rank * s->net->ranks;

    for (uint32_t w = 0; w < s->net->ranks; w++) {
        char *block = s->blocks + w * len;

        for (size_t i = 0; i < counts[w]; i++)
            places[i] = index[i] - s->starts[w];
        uint64_t bytes =
            sl_sparse_write(&s->spec, places, value, counts[w], region_len(s, w), block + HEAD);

        memcpy(block, &bytes, sizeof(bytes));
        memset(block + HEAD + bytes, 0, len - HEAD - bytes); /* no old bytes go over the wire */
        s->sent += bytes;
        index += counts[w];
        value += counts[w];
    }
    return s->net->exchange(s->net->arg, s->blocks, len, s->messages.all);
}

/* Of this rank's region, in the order of ranks, as a message. sum: zeros, and again after it. */
static int add_up(struct sl_sparse_sum *s, size_t len, float *sum, size_t *sent)
{
    struct sl_sparse_spec sums = of_sums(s);
    size_t count = region_len(s, s->net->rank), kept = 0;

    for (uint32_t r = 0; r < s->net->ranks; r++) {
        const char *block = s->messages.all + r * len;
        uint64_t bytes;

        memcpy(&bytes, block, sizeof(bytes));
        if (bytes > len - HEAD)
            return sl_fail(-EBADMSG, "rank %u has %llu bytes in a block of %zu", r,
                           (unsigned long long)bytes, len);
        int err = sl_sparse_add(&s->spec, block + HEAD, bytes, count, sum);

        if (err != 0)
            return err;
    }
    for (size_t i = 0; i < count; i++) {
        if (sum[i] == 0)
            continue;
        if (kept == region_most(s))
            return sl_fail(-EBADMSG, "ranks have given more than the %zu elements they told of",
                           kept);
        s->places[kept] = (uint32_t)i;
        s->value[kept++] = sum[i];
        sum[i] = 0;
    }
    *sent = sl_sparse_write(&sums, s->places, s->value, kept, count, s->messages.own);
    return 0;
}

static int by_regions(struct sl_sparse_sum *s, const uint32_t *index, const float *value,
                      size_t len, float *out)
{
    struct sl_sparse_spec sums = of_sums(s);
    size_t mine = 0;

    s->sent = 0;
    int err = give(s, index, value, len);

    err = err ?: add_up(s, len, out + s->starts[s->net->rank], &mine);
    err = err ?: sl_messages_gather(&s->messages, mine);
    s->sent += mine;
    for (uint32_t w = 0; err == 0 && w < s->net->ranks; w++)
        err = sl_sparse_add(&sums, sl_messages_of(&s->messages, w), s->messages.lens[w],
                            region_len(s, w), out + s->starts[w]);
    return err;
}

int sl_sparse_sum(struct sl_sparse_sum *s, const uint32_t *index, const float *value, size_t kept,
                  float *out)
{
    struct figures f = {0};
    uint64_t there = 0;
    int err = 0;

    sl_assert(kept <= s->most);
    s->by_regions = false;
    if (s->net->ranks > 2) { /* for two, regions never send less */
        err = agree_on_regions(s, index, kept);
        err = err ?: tell_counts(s, index, kept);
        if (err != 0)
            return err;
        f = look(s);
        s->by_regions = regions_send_less(s, &f);
    }
    memset(out, 0, s->count * sizeof(*out));
    err = s->by_regions ? by_regions(s, index, value, f.block, out)
                        : gathered(s, index, value, kept, out);
    for (size_t i = 0; err == 0 && f.entries > 0 && i < s->count; i++)
        there += out[i] != 0;
    if (err == 0 && f.entries > 0)
        s->overlap = (float)there / (float)f.entries;
    return err;
}
