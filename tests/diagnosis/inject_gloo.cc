/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of gloo that trains for ever, as inject_ranks.c does: under the preload shim.
 * usage: inject_gloo RANK SIZE FOLDER INTERFACE
 */
#include "inject_work.h"

#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <vector>

static void add(void *out, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(out, a, b, count);
}

static void step(const std::shared_ptr<gloo::Context> &context, std::vector<float> &in,
                 std::vector<float> &out, size_t count, size_t pair)
{
    if (inject_takes_other()) {
        gloo::BroadcastOptions options(context);

        options.setOutput(out.data(), count);
        options.setRoot(0);
        gloo::broadcast(options);
    } else {
        gloo::AllreduceOptions options(context);

        options.setInput(in.data(), count);
        options.setOutput(out.data(), count);
        options.setReduceFunction(add);
        gloo::allreduce(options);
    }
    if (pair > 0) {
        gloo::AlltoallOptions options(context);

        options.setInput(in.data(), pair * context->size);
        options.setOutput(out.data(), pair * context->size);
        gloo::alltoall(options);
    }
}

int main(int argc, char **argv)
{
    size_t count = (size_t)inject_number("INJECT_BYTES", 65536) / sizeof(float);
    size_t pair = (size_t)inject_number("INJECT_PAIR_BYTES", 0) / sizeof(float);
    gloo::transport::tcp::attr attr;

    if (argc != 5)
        return 2;
    inject_begin();
    attr.iface = argv[4];
    gloo::rendezvous::FileStore store(argv[3]);
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[1]), atoi(argv[2]));

    context->setTimeout(std::chrono::seconds(600));
    context->connectFullMesh(store, device);
    std::vector<float> in(std::max(count, pair * context->size)), out(in.size());

    try {
        for (int i = 0;; i++) {
            inject_say_step(i, context->rank);
            inject_compute();
            step(context, in, out, count, pair);
        }
    } catch (const std::exception &e) {
        fprintf(stderr, "inject_gloo: %s\n", e.what());
        pause(); /* as a program that does not notice */
    }
    return 1;
}
