/* SPDX-License-Identifier: Apache-2.0 */
/* Areas of a segment: taken, backed, and given back when nobody reads them any more. */
#include "collectives/segment.h"

#include "core/err.h"
#include "core/fork.h"
#include "core/transport.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ADDRESSES_MAX ((size_t)1 << 30) /* of a rank's segment */

struct parted {
    struct sl_node link;
    uint32_t area, channel, count;
    uint32_t ranks[]; /* [count] that may still read */
};

/* ---- memory ---- */

static int alloc_plain(struct sl_segment *segment, size_t len)
{
    void *mem =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (mem == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for windows of %zu bytes", len);
    segment->mem = (struct sl_mem){.addr = mem, .len = len, .fd = -1};
    return 0;
}

static int alloc_shared(struct sl_segment *segment, size_t len, struct sl_key *key)
{
    const struct sl_transport_ops *ops = segment->iface->ops;
    int err = ops->mem_alloc(segment->iface, len, segment->area_len, &segment->mem);

    if (err != 0)
        return err;
    sl_fork_hides(segment->mem.addr, segment->mem.len);
    err = ops->mr_reg(segment->iface, &segment->mem, &segment->mr, key);
    if (err != 0) {
        ops->mem_free(segment->iface, &segment->mem);
        segment->mem.addr = NULL;
    }
    return err;
}

int sl_segment_open(struct sl_segment *segment, struct sl_iface *iface, size_t area_len,
                    struct sl_key *key)
{
    size_t areas = ADDRESSES_MAX / area_len;
    int err;

    *segment = (struct sl_segment){.iface = iface, .area_len = area_len};
    sl_list_init(&segment->parted);
    areas = areas < 1 ? 1 : areas > SL_AREAS_MAX ? SL_AREAS_MAX : areas;
    err = iface != NULL ? alloc_shared(segment, areas * area_len, key)
                        : alloc_plain(segment, areas * area_len);
    if (err == -ENOMEM && iface != NULL && areas > 1) { /* a limit of addresses, or of files */
        areas = 1;
        err = alloc_shared(segment, area_len, key);
    }
    segment->areas = (uint32_t)areas;
    return err;
}

void sl_segment_close(struct sl_segment *segment)
{
    struct sl_node *node;

    if (segment->mem.addr == NULL)
        return;
    while ((node = sl_list_pop_front(&segment->parted)) != NULL)
        free(sl_container_of(node, struct parted, link));
    if (segment->iface == NULL) {
        munmap(segment->mem.addr, segment->mem.len);
    } else {
        segment->iface->ops->mr_dereg(segment->iface, segment->mr);
        segment->iface->ops->mem_free(segment->iface, &segment->mem);
    }
    segment->mem.addr = NULL;
}

/* ---- areas ---- */

uint32_t sl_segment_take(struct sl_segment *segment)
{
    for (uint32_t area = 0; segment->mem.addr != NULL && area < segment->areas; area++)
        if (!segment->used[area]) {
            segment->used[area] = true;
            return area;
        }
    return SL_NO_AREA;
}

int sl_segment_back(struct sl_segment *segment, uint32_t area, size_t off, size_t len)
{
    const struct sl_transport_ops *ops = segment->iface != NULL ? segment->iface->ops : NULL;

    return ops == NULL
               ? 0
               : ops->mem_back(segment->iface, &segment->mem, area * segment->area_len + off, len);
}

void sl_segment_give(struct sl_segment *segment, uint32_t area)
{
    size_t off = area * segment->area_len;

    if (segment->iface == NULL)
        madvise((uint8_t *)segment->mem.addr + off, segment->area_len, MADV_DONTNEED);
    else
        segment->iface->ops->mem_unback(segment->iface, &segment->mem, off, segment->area_len);
    segment->used[area] = false;
}

/* ---- those that others may still read ---- */

void sl_segment_part(struct sl_segment *segment, uint32_t area, uint32_t channel,
                     const uint32_t *ranks, uint32_t count)
{
    struct parted *parted;

    if (count == 0) {
        sl_segment_give(segment, area);
        return;
    }
    parted = malloc(sizeof(*parted) + count * sizeof(*ranks));
    if (parted == NULL)
        return;
    parted->area = area;
    parted->channel = channel;
    parted->count = count;
    memcpy(parted->ranks, ranks, count * sizeof(*ranks));
    sl_list_push_back(&segment->parted, &parted->link);
}

static void is_through(struct sl_segment *segment, struct parted *parted, uint32_t rank)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < parted->count; i++)
        if (parted->ranks[i] != rank)
            parted->ranks[left++] = parted->ranks[i];
    parted->count = left;
    if (left != 0)
        return;
    sl_segment_give(segment, parted->area);
    sl_list_remove(&parted->link);
    free(parted);
}

void sl_segment_heard(struct sl_segment *segment, uint32_t channel, uint32_t rank)
{
    if (segment->mem.addr == NULL)
        return;
    sl_list_foreach(&segment->parted, node)
    {
        struct parted *parted = sl_container_of(node, struct parted, link);

        if (parted->channel == channel)
            is_through(segment, parted, rank);
    }
}

void sl_segment_lost(struct sl_segment *segment, uint32_t rank)
{
    if (segment->mem.addr == NULL)
        return;
    sl_list_foreach(&segment->parted, node)
        is_through(segment, sl_container_of(node, struct parted, link), rank);
}
