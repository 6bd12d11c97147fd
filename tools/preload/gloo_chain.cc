/* SPDX-License-Identifier: Apache-2.0 */
/* Runs reductions: by the engine's own, or in gloo's order. */
#include "tools/preload/gloo_reduce.hh"

#include <algorithm>
#include <cstring>

namespace sl_gloo
{

/* Below this many bytes in all every rank gets everything and adds for itself: one exchange, not two. */
constexpr size_t GATHER_BYTES_MAX = 32768;

/* More are added piece by piece, so that what one exchange brought is in the cache when it is added. */
constexpr size_t PIECE_BYTES = 1 << 20;

uint8_t *scratch(lane &lane, size_t bytes)
{
    if (lane.scratch_bytes < bytes) {
        lane.scratch.reset(); /* not both at once */
        lane.scratch_bytes = 0;
        lane.scratch.reset(new uint8_t[bytes]);
        lane.scratch_bytes = bytes;
    }
    return lane.scratch.get();
}

int run_engine(lane &lane, const reduction &r, const manner &how)
{
    auto dtype = static_cast<enum sluice_dtype>(how.dtype);
    auto op = static_cast<enum sluice_op>(how.op);

    if (r.root < 0)
        return sluice_allreduce(lane.comm, r.in, r.out, r.elements, dtype, op, nullptr);
    return sluice_reduce(lane.comm, r.in, r.out, r.elements, dtype, op, r.root, nullptr);
}

namespace
{

size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Bytes of a block: gloo cuts the elements into segments, at least two for a rank, none above its limit. The two
 * calls round differently. */
size_t block_bytes(const reduction &r, size_t ranks)
{
    size_t limit = r.element_size * std::max<size_t>(1, r.segment_bytes / r.element_size);
    size_t total = r.bytes(), segments, segment;

    if (r.root < 0) {
        segments = round_up(std::max((total + limit - 1) / limit, ranks * 2), ranks);
        segment = round_up((total + segments - 1) / segments, r.element_size);
    } else {
        segment = round_up(std::min((total + ranks * 2 - 1) / (ranks * 2), limit), r.element_size);
        segments = round_up(std::max((total + segment - 1) / segment, ranks * 2), ranks);
    }
    return segments / ranks * segment;
}

/* Adds up block b; part(rank) is where a rank's elements of it lie. */
template <class parts>
void add_block(const reduction &r, size_t ranks, size_t b, size_t bytes, uint8_t *out, parts part)
{
    size_t first = (b + ranks - 1) % ranks, from = (b + 2 * ranks - 2) % ranks;

    (*r.reduce)(out, part(from), part(first), bytes / r.element_size);
    for (size_t i = 2; i < ranks; i++) {
        from = (from + ranks - 1) % ranks;
        (*r.reduce)(out, part(from), out, bytes / r.element_size);
    }
}

/* Where the blocks begin and end. */
struct blocks {
    size_t bytes, total;

    size_t offset(size_t b) const { return std::min(b * bytes, total); }
    size_t length(size_t b) const { return offset(b + 1) - offset(b); }
    /* Of a piece of block b, which begins at begin and has at most limit bytes. */
    size_t piece(size_t b, size_t begin, size_t limit) const
    {
        return length(b) <= begin ? 0 : std::min(limit, length(b) - begin);
    }
};

/* Everything to everyone. */
int run_small(const group &group, lane &lane, const reduction &r, const blocks &cut)
{
    size_t ranks = static_cast<size_t>(group.size), total = r.bytes();
    uint8_t *all = scratch(lane, ranks * total), *out = static_cast<uint8_t *>(r.out);
    int err = sluice_all_gather(lane.comm, r.in, all, total, SLUICE_U8, nullptr);

    if (err != 0 || (r.root >= 0 && r.root != group.rank))
        return err;
    for (size_t b = 0; b < ranks; b++)
        if (cut.length(b) != 0)
            add_block(r, ranks, b, cut.length(b), out + cut.offset(b), [&](size_t rank) {
                return all + rank * total + cut.offset(b);
            });
    return 0;
}

/* An exchange with a size for each pair of ranks, under way. */
class exchange
{
    std::vector<size_t> in_counts, in_offsets, out_counts, out_offsets;
    struct sluice_req *req = nullptr;

  public:
    explicit exchange(size_t n) : in_counts(n), in_offsets(n), out_counts(n), out_offsets(n) {}
    ~exchange() { sluice_req_free(req); }

    void give(size_t rank, size_t bytes, size_t offset)
    {
        in_counts[rank] = bytes;
        in_offsets[rank] = offset;
    }
    void get(size_t rank, size_t bytes, size_t offset)
    {
        out_counts[rank] = bytes;
        out_offsets[rank] = offset;
    }
    int start(lane &lane, const void *in, void *out)
    {
        return sluice_all_to_all_v(lane.comm, in, in_counts.data(), in_offsets.data(), out,
                                   out_counts.data(), out_offsets.data(), SLUICE_U8, &req);
    }
    int wait()
    {
        int err = req != nullptr ? sluice_wait(req) : 0;

        sluice_req_free(req);
        req = nullptr;
        return err;
    }
};

/* A piece of every block: to_owner gives each rank its own from all, to_all gives everybody the sums. */
struct piece {
    size_t begin = 0;
    uint8_t *all = nullptr, *sum = nullptr;
    exchange to_owner, to_all;

    explicit piece(size_t ranks) : to_owner(ranks), to_all(ranks) {}
};

struct chain {
    const group &g;
    lane &l;
    const reduction &r;
    const blocks &cut;
    size_t ranks, me, limit; /* bytes of a block's piece */

    int gather_parts(piece &p)
    {
        for (size_t rank = 0; rank < ranks; rank++) {
            p.to_owner.give(rank, cut.piece(rank, p.begin, limit), cut.offset(rank) + p.begin);
            p.to_owner.get(rank, cut.piece(me, p.begin, limit), rank * limit);
        }
        return p.to_owner.start(l, r.in, p.all);
    }

    int spread_sums(piece &p)
    {
        size_t mine = cut.piece(me, p.begin, limit);

        if (mine != 0)
            add_block(r, ranks, me, mine, p.sum, [&](size_t rank) { return p.all + rank * limit; });
        for (size_t rank = 0; rank < ranks; rank++) {
            bool gets = r.root < 0 || static_cast<size_t>(r.root) == rank;
            bool i_get = r.root < 0 || r.root == g.rank;

            p.to_all.give(rank, gets ? mine : 0, 0);
            p.to_all.get(rank, i_get ? cut.piece(rank, p.begin, limit) : 0, cut.offset(rank) + p.begin);
        }
        return p.to_all.start(l, p.sum, r.out);
    }

    /* While a piece is added up, the next one is on its way here and the one before on its way back. */
    int run()
    {
        piece pieces[2] = {piece(ranks), piece(ranks)};
        uint8_t *room = scratch(l, 2 * (ranks + 1) * limit);
        int err = 0;

        for (piece &p : pieces) {
            p.all = room;
            p.sum = room + ranks * limit;
            room += (ranks + 1) * limit;
        }
        err = gather_parts(pieces[0]);
        for (size_t k = 0; err == 0 && k * limit < cut.bytes; k++) {
            piece &now = pieces[k & 1], &next = pieces[~k & 1];

            next.begin = (k + 1) * limit;
            err = next.to_all.wait();
            if (err == 0 && next.begin < cut.bytes)
                err = gather_parts(next);
            if (err == 0)
                err = now.to_owner.wait();
            if (err == 0)
                err = spread_sums(now);
        }
        for (piece &p : pieces)
            err = err != 0 ? err : p.to_all.wait();
        return err;
    }
};

} // namespace

int run_chain(const group &group, lane &lane, const reduction &r)
{
    size_t ranks = static_cast<size_t>(group.size);
    blocks cut = {block_bytes(r, ranks), r.bytes()};

    if (ranks * r.bytes() <= GATHER_BYTES_MAX)
        return run_small(group, lane, r, cut);
    size_t pieces = (r.bytes() + PIECE_BYTES - 1) / PIECE_BYTES;
    chain c = {group, lane, r, cut, ranks, static_cast<size_t>(group.rank),
               round_up((cut.bytes + pieces - 1) / pieces, r.element_size)};

    return c.run();
}

} // namespace sl_gloo
