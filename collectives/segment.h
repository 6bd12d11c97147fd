/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a family's windows: one segment a rank, which the ranks of its host map once. Each
 * communicator of the family has an area of it for its window; so a split maps nothing.
 *
 * An area goes to another communicator when all ranks of this host have said that they are through
 * with the one that had it: they may still read what this rank left there.
 */
#ifndef SL_COLLECTIVES_SEGMENT_H
#define SL_COLLECTIVES_SEGMENT_H

#include "core/list.h"
#include "core/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_AREAS_MAX 128
#define SL_NO_AREA UINT32_MAX

struct sl_iface;
struct sl_key;
struct sl_mr;
struct sluice_comm;

struct sl_segment {
    struct sl_mem mem; /* addr NULL: there is none */
    struct sl_mr *mr;
    struct sl_iface *iface; /* NULL: this rank is alone on its host, the memory is plain */
    size_t area_len;        /* whole pages */
    uint64_t half;          /* payload of each of an area's halves */
    uint32_t areas;
    bool used[SL_AREAS_MAX];
    struct sl_node parted; /* of areas that others may still read */
};

/* Memory for several windows of that length, as many as there is room for in SL_AREAS_MAX; iface
 * NULL: plain memory. Its first area is backed; key is what peers map it by. -ENOMEM. */
int sl_segment_open(struct sl_segment *segment, struct sl_iface *iface, size_t area_len,
                    struct sl_key *key);
void sl_segment_close(struct sl_segment *segment);

/* A free area; SL_NO_AREA: there is none. It holds zeros once it is backed. */
uint32_t sl_segment_take(struct sl_segment *segment);
/* One that nobody but this rank has seen. */
void sl_segment_give(struct sl_segment *segment, uint32_t area);

static inline uint8_t *sl_segment_at(const struct sl_segment *segment, uint32_t area)
{
    return (uint8_t *)segment->mem.addr + area * segment->area_len;
}

/* Makes bytes [off, off+len) of an area usable. -ENOMEM. */
int sl_segment_back(struct sl_segment *segment, uint32_t area, size_t off, size_t len);

/* The communicator ends: its area is free when the last of these ranks (of the family) is through
 * with it. Without memory it stays taken. */
void sl_segment_part(struct sl_segment *segment, uint32_t area, uint32_t channel,
                     const uint32_t *ranks, uint32_t count);
/* That rank is through with the communicator of that channel. */
void sl_segment_heard(struct sl_segment *segment, uint32_t channel, uint32_t rank);
/* That rank is lost: it reads nothing any more. */
void sl_segment_lost(struct sl_segment *segment, uint32_t rank);

#endif
