/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receive buffers, and the queues that they wait in at the NIC: one that all queue pairs of a rail
 * share, or one of each queue pair's own.
 *
 * A buffer is at the NIC, in somebody's hands, or free. One of a queue pair's own goes back there
 * from whoever's hands, as long as that queue pair lives. What a queue pair leaves behind may still
 * be told of by the completion queue, though the buffer serves another by then: so each stay at the
 * NIC has a number, which comes back with its completion, and what has an older one is nobody's.
 */
#include "verbs/iface.h"
#include "verbs/queue_pair.h"

#include "core/log.h"

#include <stdlib.h>

#define STAY_SHIFT 32
#define STAY_MASK 0x3fffffffu

static struct sl_verbs_slot *slot_at(const struct sl_verbs_rail *rail, uint32_t slot)
{
    return &rail->blocks[slot / SL_VERBS_BLOCK_SLOTS].slots[slot % SL_VERBS_BLOCK_SLOTS];
}

const uint8_t *sl_verbs_slot_bytes(const struct sl_verbs_rail *rail, uint32_t slot)
{
    return rail->blocks[slot / SL_VERBS_BLOCK_SLOTS].bytes +
           (size_t)(slot % SL_VERBS_BLOCK_SLOTS) * rail->iface->mp.slot_bytes;
}

static void make_free(struct sl_verbs_rail *rail, uint32_t slot)
{
    slot_at(rail, slot)->owner = SL_VERBS_SLOT_FREE;
    rail->free_slots[rail->free_count++] = slot;
}

/* To the NIC, into the queue of path or, NULL, the shared one. False: it did not take it. */
static inline bool post(struct sl_verbs_rail *rail, const struct sl_verbs_block *block,
                        uint32_t slot, struct sl_verbs_path *path, uint64_t wr_id)
{
    struct ibv_sge sge = {.addr = (uintptr_t)block->bytes + (size_t)(slot % SL_VERBS_BLOCK_SLOTS) *
                                                                rail->iface->mp.slot_bytes,
                          .length = rail->iface->mp.slot_bytes,
                          .lkey = block->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = SL_VERBS_SLOT_BIT | wr_id | slot,
                             .sg_list = &sge,
                             .num_sge = 1},
                       *bad;
    int err =
        path == NULL ? ibv_post_srq_recv(rail->srq, &wr, &bad) : ibv_post_recv(path->qp, &wr, &bad);

    if (SL_LIKELY(err == 0))
        return true;
    rail->slots_lost += path == NULL;
    sl_warn("verbs", "%s did not take a receive buffer: %s", rail->port.name,
            sluice_strerror(-err));
    return false;
}

static bool post_own(struct sl_verbs_rail *rail, uint32_t slot)
{
    struct sl_verbs_slot *s = slot_at(rail, slot);
    struct sl_verbs_path *path = rail->iface->paths[s->owner];

    s->at_nic = post(rail, &rail->blocks[slot / SL_VERBS_BLOCK_SLOTS], slot, path,
                     SL_VERBS_OWN_BIT | (uint64_t)(++s->stay & STAY_MASK) << STAY_SHIFT);
    path->receives += s->at_nic;
    return s->at_nic;
}

void sl_verbs_slot_put(struct sl_verbs_rail *rail, uint32_t slot)
{
    const struct sl_verbs_block *block = &rail->blocks[slot / SL_VERBS_BLOCK_SLOTS];
    uint32_t owner = block->slots[slot % SL_VERBS_BLOCK_SLOTS].owner;

    if (SL_LIKELY(owner == SL_VERBS_SLOT_SHARED)) {
        rail->slots_free += post(rail, block, slot, NULL, 0);
        return;
    }
    rail->own_in_hands--;
    if (owner == SL_VERBS_SLOT_LEFT || !post_own(rail, slot))
        make_free(rail, slot);
}

bool sl_verbs_slots_in_hands(const struct sl_verbs_rail *rail)
{
    return rail->own_in_hands != 0 ||
           rail->slots_free + rail->slots_lost != rail->shared_blocks * SL_VERBS_BLOCK_SLOTS;
}

bool sl_verbs_own_take(struct sl_verbs_rail *rail, uint64_t wr_id)
{
    struct sl_verbs_slot *s = slot_at(rail, (uint32_t)wr_id);

    if (!s->at_nic || (s->stay & STAY_MASK) != (wr_id >> STAY_SHIFT & STAY_MASK))
        return false;
    s->at_nic = false;
    rail->iface->paths[s->owner]->receives--;
    rail->own_in_hands++;
    return true;
}

void sl_verbs_slot_flushed(struct sl_verbs_rail *rail, uint32_t slot)
{
    if (slot_at(rail, slot)->owner == SL_VERBS_SLOT_SHARED) {
        sl_verbs_slot_put(rail, slot);
        return;
    }
    rail->own_in_hands--;
    make_free(rail, slot);
}

static int block_new(struct sl_verbs_rail *rail, struct sl_verbs_block *block)
{
    size_t len = (size_t)SL_VERBS_BLOCK_SLOTS * rail->iface->mp.slot_bytes;
    struct sl_mem mem = {.len = len, .kind = SL_MEM_HOST, .fd = -1};
    int err;

    *block = (struct sl_verbs_block){.slots = calloc(SL_VERBS_BLOCK_SLOTS, sizeof(*block->slots))};
    if (block->slots == NULL)
        return sl_fail(-ENOMEM, "no memory for receive buffers");
    mem.addr = block->bytes = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
    err = block->bytes == NULL
              ? sl_fail(-ENOMEM, "no memory for %zu KiB of receive buffers", len >> 10)
              : sl_verbs_memory_make(rail->memory, &mem, SL_VERBS_OURS, &block->mr);
    if (err != 0) {
        free(block->bytes);
        free(block->slots);
        return err;
    }
    return 0;
}

static int block_add(struct sl_verbs_rail *rail, bool shared)
{
    unsigned count = rail->block_count + 1;
    struct sl_verbs_block *blocks = reallocarray(rail->blocks, count, sizeof(*blocks));
    uint32_t *free_slots;
    int err;

    if (blocks != NULL)
        rail->blocks = blocks;
    free_slots =
        reallocarray(rail->free_slots, (size_t)count * SL_VERBS_BLOCK_SLOTS, sizeof(*free_slots));
    if (free_slots != NULL)
        rail->free_slots = free_slots;
    if (blocks == NULL || free_slots == NULL)
        return sl_fail(-ENOMEM, "no memory for receive buffers");
    err = block_new(rail, &blocks[rail->block_count]);
    if (err != 0)
        return err;
    rail->block_count++;
    rail->shared_blocks += shared;
    for (uint32_t i = 0; i < SL_VERBS_BLOCK_SLOTS; i++) {
        uint32_t slot = (count - 1) * SL_VERBS_BLOCK_SLOTS + i;

        slot_at(rail, slot)->owner = SL_VERBS_SLOT_SHARED;
        if (shared)
            sl_verbs_slot_put(rail, slot);
        else
            make_free(rail, slot);
    }
    return 0;
}

int sl_verbs_rail_provide(struct sl_verbs_rail *rail, unsigned eps)
{
    unsigned full = eps < SL_VERBS_FULL_EPS ? eps : SL_VERBS_FULL_EPS;
    unsigned slots =
        SL_VERBS_SPARE_SLOTS + full * SL_MP_CREDITS + (eps - full) * SL_VERBS_SHARED_SLOTS;

    if (rail->srq_room == 0)
        return 0; /* each queue pair brings its own */
    /* With fewer than credits the NIC waits at times (RNR), and loses nothing. */
    if (slots > rail->srq_room)
        slots = rail->srq_room;
    while (rail->shared_blocks * SL_VERBS_BLOCK_SLOTS + SL_VERBS_BLOCK_SLOTS <= slots ||
           rail->shared_blocks == 0) {
        int err = 0;

        bool is_first = rail->shared_blocks == 0;

        if (!(is_first ? sl_verbs_cq_take : sl_verbs_cq_take_further)(rail, SL_VERBS_BLOCK_SLOTS)) {
            if (!is_first)
                break; /* those that there are serve more */
            err = sl_fail(-ENOMEM, "the completion queue of %s has %d entries: too few",
                          rail->port.name, rail->cq->cqe);
        }
        if (err == 0) {
            err = block_add(rail, true);
            if (err != 0)
                sl_verbs_cq_give(rail, SL_VERBS_BLOCK_SLOTS);
        }
        if (err != 0)
            return err;
    }
    return 0;
}

/* ---- queues of queue pairs ---- */

unsigned sl_verbs_own_receives(const struct sl_verbs_rail *rail, bool is_first)
{
    unsigned kept = SL_VERBS_FIRST_PATHS * SL_VERBS_OWN_SLOTS_MIN;
    unsigned left = rail->own_room - rail->own_count;

    if (rail->srq_room != 0)
        return 0;
    if (left >= rail->own_most + kept)
        return rail->own_most;
    /* Its completion queue has room for few more: these wait more often (RNR). */
    return left >= SL_VERBS_OWN_SLOTS_MIN + (is_first ? 0 : kept) ? SL_VERBS_OWN_SLOTS_MIN : 0;
}

int sl_verbs_own_fill(struct sl_verbs_path *path)
{
    struct sl_verbs_rail *rail = path->rail;

    for (unsigned i = 0; i < path->own_slots; i++) {
        int err = rail->free_count > 0 ? 0 : block_add(rail, false);

        if (err != 0)
            return err;
        uint32_t slot = rail->free_slots[--rail->free_count];

        slot_at(rail, slot)->owner = path->slot;
        if (!post_own(rail, slot)) {
            make_free(rail, slot);
            return sl_fail(-EIO, "%s did not take a receive buffer", rail->port.name);
        }
    }
    return 0;
}

void sl_verbs_own_leave(struct sl_verbs_path *path)
{
    struct sl_verbs_rail *rail = path->rail;

    if (path->own_slots == 0)
        return;
    for (uint32_t slot = 0; slot < rail->block_count * SL_VERBS_BLOCK_SLOTS; slot++) {
        struct sl_verbs_slot *s = slot_at(rail, slot);

        if (s->owner != path->slot)
            continue;
        if (s->at_nic)
            make_free(rail, slot);
        else
            s->owner = SL_VERBS_SLOT_LEFT;
        s->at_nic = false;
    }
    rail->own_count -= path->own_slots;
    path->own_slots = path->receives = 0;
}

bool sl_verbs_few_receives(const struct sl_verbs_path *path)
{
    return path->own_slots != 0 ? path->receives < path->own_slots / 4
                                : path->rail->slots_free < SL_VERBS_SPARE_SLOTS / 2;
}

void sl_verbs_slots_close(struct sl_verbs_rail *rail)
{
    for (unsigned i = 0; i < rail->block_count; i++) {
        sl_verbs_memory_end(rail->memory, rail->blocks[i].mr);
        free(rail->blocks[i].bytes);
        free(rail->blocks[i].slots);
    }
    free(rail->blocks);
    free(rail->free_slots);
}
