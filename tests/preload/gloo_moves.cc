/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that move elements: each element says where it comes from. */
#include "gloo_program.hh"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/scatter.h>
#if __has_include(<gloo/gatherv.h>) /* Debian 12 leaves it out */
#include <gloo/gatherv.h>
#define HAVE_GATHERV 1
#endif

#include <vector>

namespace
{

using element = uint64_t;

element mark(int from, int to, size_t i)
{
    return static_cast<element>(from) << 48 | static_cast<element>(to) << 32 | i;
}

std::vector<element> marked(int from, int to, size_t count)
{
    std::vector<element> values(count);

    for (size_t i = 0; i < count; i++)
        values[i] = mark(from, to, i);
    return values;
}

void check(const process &p, const char *what, const element *got, int from, int to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (got[i] != mark(from, to, i))
            wrong(p, std::string(what) + ": element " + std::to_string(i) + " of rank " +
                         std::to_string(from) + " is wrong, of " + std::to_string(count));
}

void run_allgather(process &p, const context_ptr &context, size_t count, bool in_place)
{
    std::vector<element> in = marked(p.rank, 0, count), out(count * static_cast<size_t>(p.size));
    gloo::AllgatherOptions options(context);

    if (in_place)
        std::copy(in.begin(), in.end(), out.begin() + static_cast<long>(count) * p.rank);
    else
        options.setInput(in.data(), count);
    options.setOutput(out.data(), out.size());
    gloo::allgather(options);
    for (int rank = 0; rank < p.size; rank++)
        check(p, "allgather", &out[count * static_cast<size_t>(rank)], rank, 0, count);
}

/* The sizes that ranks have in calls with sizes of their own; one of them has nothing. */
size_t size_of(int rank, size_t count)
{
    return count * static_cast<size_t>((rank + 2) % 4);
}

std::vector<size_t> sizes(const process &p, size_t count, size_t *total)
{
    std::vector<size_t> all;

    *total = 0;
    for (int rank = 0; rank < p.size; rank++) {
        all.push_back(size_of(rank, count));
        *total += all.back();
    }
    return all;
}

void run_allgatherv(process &p, const context_ptr &context, size_t count, bool in_place)
{
    size_t total, at = 0;
    std::vector<size_t> counts = sizes(p, count, &total);
    std::vector<element> in = marked(p.rank, 0, size_of(p.rank, count)), out(total + 1);
    gloo::AllgathervOptions options(context);

    if (in_place) {
        for (int rank = 0; rank < p.rank; rank++)
            at += size_of(rank, count);
        std::copy(in.begin(), in.end(), out.begin() + static_cast<long>(at));
    } else {
        options.setInput(in.data(), in.size());
    }
    options.setOutput(out.data(), counts);
    gloo::allgatherv(options);
    at = 0;
    for (int rank = 0; rank < p.size; rank++) {
        check(p, "allgatherv", &out[at], rank, 0, size_of(rank, count));
        at += size_of(rank, count);
    }
}

void run_broadcast(process &p, const context_ptr &context, size_t count, bool in_place)
{
    for (int root = 0; root < p.size; root++) {
        std::vector<element> in = marked(root, 0, count), out(count);
        gloo::BroadcastOptions options(context);

        if (p.rank == root && in_place)
            out = in;
        else if (p.rank == root)
            options.setInput(in.data(), count);
        options.setOutput(out.data(), count);
        options.setRoot(root);
        gloo::broadcast(options);
        check(p, "broadcast", out.data(), root, 0, count);
    }
}

void run_gather(process &p, const context_ptr &context, size_t count)
{
    for (int root = 0; root < p.size; root++) {
        std::vector<element> in = marked(p.rank, root, count);
        std::vector<element> out(p.rank == root ? count * static_cast<size_t>(p.size) : 0);
        gloo::GatherOptions options(context);

        options.setInput(in.data(), count);
        if (p.rank == root)
            options.setOutput(out.data(), out.size());
        options.setRoot(root);
        gloo::gather(options);
        for (int rank = 0; p.rank == root && rank < p.size; rank++)
            check(p, "gather", &out[count * static_cast<size_t>(rank)], rank, root, count);
    }
}

#ifdef HAVE_GATHERV
void run_gatherv(process &p, const context_ptr &context, size_t count)
{
    size_t total, at = 0;
    std::vector<size_t> counts = sizes(p, count, &total);
    int root = p.size - 1;
    std::vector<element> in = marked(p.rank, root, size_of(p.rank, count)), out(total + 1);
    gloo::GathervOptions options(context);

    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), counts);
    options.setRoot(root);
    gloo::gatherv(options);
    for (int rank = 0; p.rank == root && rank < p.size; rank++) {
        check(p, "gatherv", &out[at], rank, root, size_of(rank, count));
        at += size_of(rank, count);
    }
}

#endif

void run_scatter(process &p, const context_ptr &context, size_t count)
{
    for (int root = 0; root < p.size; root++) {
        std::vector<std::vector<element>> in;
        std::vector<element *> pointers;
        std::vector<element> out(count);
        gloo::ScatterOptions options(context);

        for (int rank = 0; rank < p.size; rank++)
            in.push_back(marked(root, rank, count));
        for (std::vector<element> &block : in)
            pointers.push_back(block.data());
        if (p.rank == root)
            options.setInputs(pointers, count);
        options.setOutput(out.data(), count);
        options.setRoot(root);
        gloo::scatter(options);
        check(p, "scatter", out.data(), root, p.rank, count);
    }
}

void run_alltoall(process &p, const context_ptr &context, size_t count)
{
    std::vector<element> in, out(count * static_cast<size_t>(p.size));
    gloo::AlltoallOptions options(context);

    for (int rank = 0; rank < p.size; rank++)
        for (element e : marked(p.rank, rank, count))
            in.push_back(e);
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), out.size());
    gloo::alltoall(options);
    for (int rank = 0; rank < p.size; rank++)
        check(p, "alltoall", &out[count * static_cast<size_t>(rank)], rank, p.rank, count);
}

size_t pair_size(int from, int to, size_t count)
{
    return count * static_cast<size_t>((from + 2 * to) % 3);
}

void run_alltoallv(process &p, const context_ptr &context, size_t count)
{
    std::vector<int64_t> in_counts, out_counts;
    std::vector<element> in, out;
    size_t at = 0;
    gloo::AlltoallvOptions options(context);

    for (int rank = 0; rank < p.size; rank++) {
        for (element e : marked(p.rank, rank, pair_size(p.rank, rank, count)))
            in.push_back(e);
        in_counts.push_back(static_cast<int64_t>(pair_size(p.rank, rank, count)));
        out_counts.push_back(static_cast<int64_t>(pair_size(rank, p.rank, count)));
        at += pair_size(rank, p.rank, count);
    }
    in.push_back(0); /* not empty: a buffer has an address */
    out.resize(at + 1);
    options.setInput(in.data(), in_counts);
    options.setOutput(out.data(), out_counts);
    gloo::alltoallv(options);
    at = 0;
    for (int rank = 0; rank < p.size; rank++) {
        check(p, "alltoallv", &out[at], rank, p.rank, pair_size(rank, p.rank, count));
        at += pair_size(rank, p.rank, count);
    }
}

} // namespace

void run_moves(process &p, const context_ptr &context)
{
    for (size_t count : {1, 17, 3000, 100000}) {
        run_allgather(p, context, count, false);
        run_allgather(p, context, count, true);
        run_allgatherv(p, context, count, false);
        run_allgatherv(p, context, count, true);
        run_broadcast(p, context, count, false);
        run_broadcast(p, context, count, true);
        run_gather(p, context, count);
#ifdef HAVE_GATHERV
        run_gatherv(p, context, count);
#endif
        run_scatter(p, context, count);
        run_alltoall(p, context, count);
        run_alltoallv(p, context, count);
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    }
}
