/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gloo's calls, on the engine. What is wrong with a call's arguments is left for gloo itself to
 * say: such calls are passed on. Otherwise a context's calls all go the same way, on every rank.
 */
#include "tools/preload/gloo_reduce.hh"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sl_gloo
{

namespace
{

uint8_t *at(const buffer_ref &buffer)
{
    return static_cast<uint8_t *>(buffer->ptr);
}

size_t size_of(const context_ref &context)
{
    return static_cast<size_t>(view(context).size);
}

bool is_rank(int root, const context_ref &context)
{
    return root >= 0 && root < view(context).size;
}

/* A call of a program, on its way. */
struct call {
    enum sl_gloo_call number;
    void *options;
    const context_ref &context;
    uint32_t tag;
    duration timeout;
    size_t bytes;    /* for the report */
    manner how = {}; /* of reductions */

    /* As the program wrote it, for errors. */
    std::string text() const
    {
#define X(call, symbol) "gloo::" #call,
        static const char *const names[] = {SL_GLOO_CALLS(X)};
#undef X
        std::string name = names[number];

        return how.elements != 0 ? name + " of " + how.text()
               : bytes != 0      ? name + " of " + std::to_string(bytes) + " bytes"
                                 : name;
    }

    void pass() const
    {
        sl_gloo_passed(number);
        sl_gloo_here.original[number](options);
    }
};

/* Ends the turn, however the call ends. */
class turn
{
    group &of;
    lane &its;

  public:
    turn(group &g, lane &l) : of(g), its(l)
    {
    }
    ~turn()
    {
        of.leave(its);
    }
};

/* Runs a call whose arguments are in order, once it is its turn: run(group, lane) returns 0 or a
 * negative errno. */
template <class body>
void take(call &c, body run)
{
    std::shared_ptr<group> g = group_of(c.context);

    if (g->size <= 1 || !g->is_ours()) {
        sl_gloo_alone(c.number);
        sl_gloo_here.original[c.number](c.options);
        return;
    }
    if (!g->ready(c.context, c.timeout)) {
        sl_gloo_no_engine(c.number);
        sl_gloo_here.original[c.number](c.options);
        return;
    }
    uint64_t begin = sl_gloo_now();
    int err;
    {
        lane &lane = g->enter({c.number, c.tag}, c.timeout, c.how);
        turn ends(*g, lane);

        try {
            err = run(*g, lane);
        } catch (...) { /* no memory, or the program's own function threw */
            g->abandon();
            throw;
        }
    }
    if (err != 0)
        g->fail(err, c.timeout, c.text());
    sl_gloo_taken(c.number, c.bytes, sl_gloo_now() - begin);
}

/* ---- reductions ---- */

int run_reduction(const call &c, const group &g, lane &lane, const reduction &r)
{
    return c.how.chain != 0 ? run_chain(g, lane, r) : run_engine(lane, r, c.how);
}

bool all_of_size(const std::vector<buffer_ref> &buffers, size_t bytes)
{
    for (const buffer_ref &buffer : buffers)
        if (!buffer || buffer->size != bytes)
            return false;
    return true;
}

/* A process may have several inputs (its GPUs' copies, mostly): they are added here first, as gloo
 * does. Returns where the sum is. */
const void *add_inputs(const allreduce_options &o)
{
    uint8_t *sum = at(o.out[0]);

    if (o.in.size() == 1)
        return at(o.in[0]);
    if (o.in.empty()) {
        for (size_t i = 1; i < o.out.size(); i++)
            o.reduce(sum, sum, at(o.out[i]), o.elements);
        return sum;
    }
    o.reduce(sum, at(o.in[0]), at(o.in[1]), o.elements);
    for (size_t i = 2; i < o.in.size(); i++)
        o.reduce(sum, sum, at(o.in[i]), o.elements);
    return sum;
}

void allreduce(allreduce_options &o)
{
    size_t bytes = o.elements * o.element_size;
    call c = {SL_GLOO_allreduce, &o, o.context, o.tag, o.timeout, bytes};

    /* Another algorithm than the ring was asked for by name: its order of additions is its own. */
    if (bytes == 0 || o.out.empty() || !o.reduce || !all_of_size(o.in, bytes) ||
        !all_of_size(o.out, bytes) || o.algorithm > 1)
        return c.pass();
    reduction r = {nullptr,         at(o.out[0]), o.elements, o.element_size,
                   o.segment_bytes, &o.reduce,    -1};

    c.how = manner_of(r, view(o.context).size);
    c.how.elements = o.elements;
    c.how.element_size = static_cast<uint8_t>(std::min<size_t>(o.element_size, 255));
    take(c, [&](group &g, lane &lane) {
        r.in = add_inputs(o);
        int err = run_reduction(c, g, lane, r);

        for (size_t i = 1; err == 0 && i < o.out.size(); i++)
            memcpy(at(o.out[i]), r.out, bytes);
        return err;
    });
}

void reduce(reduce_options &o)
{
    size_t bytes = o.elements * o.element_size;
    call c = {SL_GLOO_reduce, &o, o.context, o.tag, o.timeout, bytes};

    if (bytes == 0 || !o.out || !o.reduce || !is_rank(o.root, o.context) || o.out->size != bytes ||
        (o.in && o.in->size != bytes))
        return c.pass();
    reduction r = {o.in ? at(o.in) : at(o.out),
                   at(o.out),
                   o.elements,
                   o.element_size,
                   o.segment_bytes,
                   &o.reduce,
                   o.root};

    c.how = manner_of(r, view(o.context).size);
    c.how.elements = o.elements;
    c.how.element_size = static_cast<uint8_t>(std::min<size_t>(o.element_size, 255));
    take(c, [&](group &g, lane &lane) { return run_reduction(c, g, lane, r); });
}

/* ---- one size for all ---- */

void allgather(exchange_options &o)
{
    size_t ranks = size_of(o.context), bytes = o.out ? o.out->size / ranks : 0;
    call c = {SL_GLOO_allgather, &o, o.context, o.tag, o.timeout, bytes};

    if (o.element_size == 0 || !o.out || o.out->size % ranks != 0 || (o.in && o.in->size != bytes))
        return c.pass();
    take(c, [&](group &g, lane &lane) {
        const uint8_t *in = o.in ? at(o.in) : at(o.out) + static_cast<size_t>(g.rank) * bytes;

        return sluice_all_gather(lane.comm, in, at(o.out), bytes, SLUICE_U8, nullptr);
    });
}

void broadcast(broadcast_options &o)
{
    size_t bytes = o.out ? o.out->size : 0;
    call c = {SL_GLOO_broadcast, &o, o.context, o.tag, o.timeout, bytes};

    if (o.element_size == 0 || !o.out || !is_rank(o.root, o.context) ||
        (o.in && (o.in->size != bytes || view(o.context).rank != o.root)))
        return c.pass();
    take(c, [&](group &, lane &lane) {
        return sluice_broadcast(lane.comm, o.in ? at(o.in) : at(o.out), at(o.out), bytes, SLUICE_U8,
                                o.root, nullptr);
    });
}

void gather(gather_options &o)
{
    size_t ranks = size_of(o.context), bytes = o.in ? o.in->size : 0;
    bool root = o.root == view(o.context).rank;
    call c = {SL_GLOO_gather, &o, o.context, o.tag, o.timeout, bytes};

    if (o.element_size == 0 || !o.in || !is_rank(o.root, o.context) ||
        (root && (!o.out || o.out->size != bytes * ranks)))
        return c.pass();
    take(c, [&](group &, lane &lane) {
        return sluice_gather(lane.comm, at(o.in), root ? at(o.out) : nullptr, bytes, SLUICE_U8,
                             o.root, nullptr);
    });
}

/* Root's blocks lie anywhere: each is sent by itself. */
int send_blocks(const group &g, lane &lane, scatter_options &o)
{
    int err = sluice_group_start();

    for (int rank = 0; err == 0 && rank < g.size; rank++)
        if (rank != g.rank)
            err = sluice_send(lane.comm, at(o.in[static_cast<size_t>(rank)]), o.out->size,
                              SLUICE_U8, rank, nullptr);
    int ended = sluice_group_end();

    return err != 0 ? err : ended;
}

void scatter(scatter_options &o)
{
    size_t ranks = size_of(o.context), bytes = o.out ? o.out->size : 0;
    int me = view(o.context).rank;
    call c = {SL_GLOO_scatter, &o, o.context, o.tag, o.timeout, bytes};

    if (o.element_size == 0 || !o.out || !is_rank(o.root, o.context) ||
        (o.root == me && (o.in.size() != ranks || !all_of_size(o.in, bytes))))
        return c.pass();
    take(c, [&](group &g, lane &lane) {
        if (o.root != me)
            return sluice_recv(lane.comm, at(o.out), bytes, SLUICE_U8, o.root, nullptr);
        int err = send_blocks(g, lane, o);

        if (bytes != 0)
            memmove(at(o.out), at(o.in[static_cast<size_t>(me)]), bytes);
        return err;
    });
}

void alltoall(exchange_options &o)
{
    size_t ranks = size_of(o.context), bytes = o.in ? o.in->size : 0;
    call c = {SL_GLOO_alltoall, &o, o.context, o.tag, o.timeout, bytes};

    if (o.element_size == 0 || !o.in || !o.out || bytes % ranks != 0 || o.out->size != bytes)
        return c.pass();
    take(c, [&](group &, lane &lane) {
        return sluice_all_to_all(lane.comm, at(o.in), at(o.out), bytes / ranks, SLUICE_U8, nullptr);
    });
}

/* ---- a size for each rank ---- */

struct lists {
    std::vector<size_t> in_counts, in_offsets, out_counts, out_offsets;

    explicit lists(size_t n) : in_counts(n), in_offsets(n), out_counts(n), out_offsets(n)
    {
    }

    int exchange(lane &lane, const void *in, void *out)
    {
        return sluice_all_to_all_v(lane.comm, in, in_counts.data(), in_offsets.data(), out,
                                   out_counts.data(), out_offsets.data(), SLUICE_U8, nullptr);
    }
};

/* Bytes by rank, and where they begin when they lie one after the other. Returns the sum. */
size_t lay_out(const std::vector<size_t> &elements, size_t element_size,
               std::vector<size_t> &counts, std::vector<size_t> &offsets)
{
    size_t end = 0;

    for (size_t rank = 0; rank < counts.size(); rank++) {
        counts[rank] = elements[rank] * element_size;
        offsets[rank] = end;
        end += counts[rank];
    }
    return end;
}

void allgatherv(allgatherv_options &o)
{
    size_t ranks = size_of(o.context), me = static_cast<size_t>(view(o.context).rank);
    lists l(ranks);
    call c = {SL_GLOO_allgatherv, &o, o.context, o.tag, o.timeout, 0};

    if (o.element_size == 0 || !o.out || o.elements.size() != ranks ||
        lay_out(o.elements, o.element_size, l.out_counts, l.out_offsets) != o.out->size ||
        (o.in && o.in->size != l.out_counts[me]))
        return c.pass();
    c.bytes = l.out_counts[me];
    take(c, [&](group &, lane &lane) {
        const uint8_t *in = o.in ? at(o.in) : nullptr;

        if (in == nullptr) { /* in place: the engine keeps input and output apart */
            uint8_t *copy = scratch(lane, c.bytes + 1);

            memcpy(copy, at(o.out) + l.out_offsets[me], c.bytes);
            in = copy;
        }
        std::fill(l.in_counts.begin(), l.in_counts.end(), c.bytes);
        return l.exchange(lane, in, at(o.out));
    });
}

void gatherv(gatherv_options &o)
{
    size_t ranks = size_of(o.context), me = static_cast<size_t>(view(o.context).rank);
    bool root = o.root == view(o.context).rank;
    lists l(ranks);
    call c = {SL_GLOO_gatherv, &o, o.context, o.tag, o.timeout, 0};

    if (o.element_size == 0 || !o.in || !is_rank(o.root, o.context) || o.elements.size() != ranks)
        return c.pass();
    size_t total = lay_out(o.elements, o.element_size, l.out_counts, l.out_offsets);

    c.bytes = l.out_counts[me];
    if (root ? !o.out || o.out->size != total || o.in->size != c.bytes : o.in->size < c.bytes)
        return c.pass();
    take(c, [&](group &, lane &lane) {
        l.in_counts[static_cast<size_t>(o.root)] = c.bytes;
        if (!root)
            std::fill(l.out_counts.begin(), l.out_counts.end(), 0);
        return l.exchange(lane, at(o.in), root ? at(o.out) : nullptr);
    });
}

void alltoallv(alltoallv_options &o)
{
    size_t ranks = size_of(o.context), me = static_cast<size_t>(view(o.context).rank);
    call c = {SL_GLOO_alltoallv, &o, o.context, o.tag, o.timeout, o.in ? o.in->size : 0};

    if (o.element_size == 0 || !o.in || !o.out || o.in_lengths.size() != ranks ||
        o.out_lengths.size() != ranks || o.in_lengths[me] != o.out_lengths[me])
        return c.pass();
    take(c, [&](group &, lane &lane) {
        return sluice_all_to_all_v(lane.comm, at(o.in), o.in_lengths.data(), o.in_offsets.data(),
                                   at(o.out), o.out_lengths.data(), o.out_offsets.data(), SLUICE_U8,
                                   nullptr);
    });
}

void barrier(barrier_options &o)
{
    call c = {SL_GLOO_barrier, &o, o.context, o.tag, o.timeout, 0};

    take(c, [&](group &, lane &lane) { return sluice_barrier(lane.comm, nullptr); });
}

} // namespace

} // namespace sl_gloo

#define SL_GLOO_DEFINE(name, type)                                                                 \
    extern "C" void sl_gloo_##name(void *options)                                                  \
    {                                                                                              \
        sl_gloo::name(*static_cast<sl_gloo::type *>(options));                                     \
    }
SL_GLOO_DEFINE(allreduce, allreduce_options)
SL_GLOO_DEFINE(allgather, exchange_options)
SL_GLOO_DEFINE(allgatherv, allgatherv_options)
SL_GLOO_DEFINE(broadcast, broadcast_options)
SL_GLOO_DEFINE(reduce, reduce_options)
SL_GLOO_DEFINE(gather, gather_options)
SL_GLOO_DEFINE(gatherv, gatherv_options)
SL_GLOO_DEFINE(scatter, scatter_options)
SL_GLOO_DEFINE(alltoall, exchange_options)
SL_GLOO_DEFINE(alltoallv, alltoallv_options)
SL_GLOO_DEFINE(barrier, barrier_options)
