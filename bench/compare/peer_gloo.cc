/* SPDX-License-Identifier: Apache-2.0 */
/* The Gloo peer: TCP over the loopback interface, ranks met through files. Arguments of the loop
 * come after RANK SIZE DIRECTORY. */
#include "loop.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace
{

struct state {
    std::shared_ptr<gloo::rendezvous::Context> context;
    /* This algorithm reduces in place over buffers that it is made for. */
    std::map<std::pair<float *, size_t>, std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>>>
        reduce_scatters;
};

void allreduce(state *s, const float *in, float *out, size_t count)
{
    gloo::AllreduceOptions options(s->context);

    options.setInput(const_cast<float *>(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(
        [](void *a, const void *b, const void *c, size_t n) { gloo::sum<float>(a, b, c, n); });
    gloo::allreduce(options);
}

/* Out of place as the others': the input is copied first, since the algorithm overwrites it. */
void reduce_scatter(state *s, const float *in, float *out, size_t count)
{
    size_t total = count * static_cast<size_t>(s->context->size);
    static std::vector<float> work;

    if (work.size() != total) {
        s->reduce_scatters.clear();
        work.assign(total, 0);
    }
    auto &algorithm = s->reduce_scatters[{work.data(), total}];
    if (!algorithm)
        algorithm = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
            s->context, std::vector<float *>{work.data()}, static_cast<int>(total),
            std::vector<int>(static_cast<size_t>(s->context->size), static_cast<int>(count)));
    memcpy(work.data(), in, total * sizeof(float));
    algorithm->run();
    memcpy(out, work.data(), count * sizeof(float));
}

void run(void *self, enum coll coll, const float *in, float *out, size_t count)
{
    state *s = static_cast<state *>(self);
    float *input = const_cast<float *>(in);
    size_t total = count * static_cast<size_t>(s->context->size);

    if (coll == ALLREDUCE) {
        allreduce(s, in, out, count);
    } else if (coll == ALL_GATHER) {
        gloo::AllgatherOptions options(s->context);
        options.setInput(input, count);
        options.setOutput(out, total);
        gloo::allgather(options);
    } else if (coll == REDUCE_SCATTER) {
        reduce_scatter(s, in, out, count);
    } else if (coll == ALL_TO_ALL) {
        gloo::AlltoallOptions options(s->context);
        options.setInput(input, total);
        options.setOutput(out, total);
        gloo::alltoall(options);
    } else if (coll == BROADCAST) {
        gloo::BroadcastOptions options(s->context);
        options.setOutput(out, count);
        options.setRoot(0);
        gloo::broadcast(options);
    } else {
        gloo::BarrierOptions options(s->context);
        gloo::barrier(options);
    }
}

double max(void *self, double value)
{
    gloo::AllreduceOptions options(static_cast<state *>(self)->context);
    double largest = value;

    options.setOutput(&largest, 1);
    options.setReduceFunction(
        [](void *a, const void *b, const void *c, size_t n) { gloo::max<double>(a, b, c, n); });
    gloo::allreduce(options);
    return largest;
}

} // namespace

int main(int argc, char **argv)
{
    struct state s;
    struct peer peer = {};
    gloo::transport::tcp::attr attr;

    if (argc < 4) {
        fprintf(stderr, "usage: %s RANK SIZE DIRECTORY ...\n", argv[0]);
        return 2;
    }
    peer.rank = atoi(argv[1]);
    peer.size = atoi(argv[2]);
    peer.self = &s;
    peer.run = run;
    peer.max = max;
    attr.iface = "lo";
    gloo::rendezvous::FileStore store(argv[3]);
    s.context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.size);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
    s.context->connectFullMesh(store, device);
    argv[3] = argv[0];
    return loop_main(&peer, argc - 3, argv + 3);
}
