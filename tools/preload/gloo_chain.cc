/* SPDX-License-Identifier: Apache-2.0 */
/* Runs reductions: by the engine's own, or in gloo's order. */
#include "tools/preload/gloo_reduce.hh"

#include <algorithm>
#include <cstring>

namespace sl_gloo
{

/* Below this many bytes in all every rank gets everything and adds for itself: one exchange, not
 * two. */
constexpr size_t GATHER_BYTES_MAX = 32768;

/* More are added piece by piece, so that what one exchange brought is in the cache when it is
 * added. */
constexpr size_t PIECE_BYTES = 262144;

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

/* Bytes of a block: gloo cuts the elements into segments, at least two for a rank, none above its
 * limit. The two calls round differently. */
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

    size_t offset(size_t b) const
    {
        return std::min(b * bytes, total);
    }
    size_t length(size_t b) const
    {
        return offset(b + 1) - offset(b);
    }
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
            add_block(r, ranks, b, cut.length(b), out + cut.offset(b),
                      [&](size_t rank) { return all + rank * total + cut.offset(b); });
    return 0;
}

/* A request under way, or none. */
class pending
{
    struct sluice_req *req = nullptr;

  public:
    ~pending()
    {
        sluice_req_free(req);
    }
    struct sluice_req **start()
    {
        return &req;
    }
    int wait()
    {
        int err = req != nullptr ? sluice_wait(req) : 0;

        sluice_req_free(req);
        req = nullptr;
        return err;
    }
};

/* A piece of every block, side by side: what this rank gives, what it got to add up, the sum of its
 * own block's piece, and everybody's sums. */
struct piece {
    size_t begin = 0; /* in a block */
    uint8_t *given = nullptr, *parts = nullptr, *sum = nullptr, *sums = nullptr;
    pending to_owner, to_all;
};

struct chain {
    const group &g;
    lane &l;
    const reduction &r;
    const blocks &cut;
    size_t ranks, me, limit; /* bytes of a block's piece */
    bool straight;           /* the blocks fill the program's buffers, in one piece */

    bool i_get() const
    {
        return r.root < 0 || r.root == g.rank;
    }

    void lay_out(piece *pieces)
    {
        size_t all = ranks * limit, one = limit + (straight ? 1 : 3) * all;
        uint8_t *room = scratch(l, 2 * one);

        for (int i = 0; i < 2; i++, room += one) {
            pieces[i].parts = room;
            pieces[i].sum = room + all;
            pieces[i].given =
                straight ? static_cast<uint8_t *>(const_cast<void *>(r.in)) : room + all + limit;
            pieces[i].sums = straight ? static_cast<uint8_t *>(r.out) : room + 2 * all + limit;
        }
    }

    int gather_parts(piece &p)
    {
        if (!straight)
            for (size_t rank = 0; rank < ranks; rank++)
                memcpy(p.given + rank * limit,
                       static_cast<const uint8_t *>(r.in) + cut.offset(rank) + p.begin,
                       cut.piece(rank, p.begin, limit));
        return sluice_all_to_all(l.comm, p.given, p.parts, limit, SLUICE_U8, p.to_owner.start());
    }

    int spread_sums(piece &p)
    {
        size_t mine = cut.piece(me, p.begin, limit);

        if (mine != 0)
            add_block(r, ranks, me, mine, p.sum,
                      [&](size_t rank) { return p.parts + rank * limit; });
        if (r.root < 0)
            return sluice_all_gather(l.comm, p.sum, p.sums, limit, SLUICE_U8, p.to_all.start());
        return sluice_gather(l.comm, p.sum, i_get() ? p.sums : nullptr, limit, SLUICE_U8, r.root,
                             p.to_all.start());
    }

    int take_sums(piece &p)
    {
        bool any = *p.to_all.start() != nullptr;
        int err = p.to_all.wait();

        for (size_t rank = 0; err == 0 && any && !straight && i_get() && rank < ranks; rank++)
            memcpy(static_cast<uint8_t *>(r.out) + cut.offset(rank) + p.begin,
                   p.sums + rank * limit, cut.piece(rank, p.begin, limit));
        return err;
    }

    /* While a piece is added up, the next one is on its way here and the one before on its way
     * back. */
    int run()
    {
        piece pieces[2];
        int err;

        lay_out(pieces);
        err = gather_parts(pieces[0]);
        for (size_t k = 0; err == 0 && k * limit < cut.bytes; k++) {
            piece &now = pieces[k & 1], &next = pieces[~k & 1];

            err = take_sums(next);
            next.begin = (k + 1) * limit;
            if (err == 0 && next.begin < cut.bytes)
                err = gather_parts(next);
            if (err == 0)
                err = now.to_owner.wait();
            if (err == 0)
                err = spread_sums(now);
        }
        for (piece &p : pieces)
            err = err != 0 ? err : take_sums(p);
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
    size_t limit = round_up((cut.bytes + pieces - 1) / pieces, r.element_size);
    chain c = {group, lane,
               r,     cut,
               ranks, static_cast<size_t>(group.rank),
               limit, limit >= cut.bytes && ranks * cut.bytes == r.bytes()};

    return c.run();
}

} // namespace sl_gloo
