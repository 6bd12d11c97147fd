/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts RANKS processes that meet in FOLDER and run a part of the test each.
 * usage: gloo_program RANKS FOLDER every|threads|contexts|late|death|throw|fork|speed [BYTES TIMES]
 */
#include "gloo_program.hh"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

context_ptr process::connect(std::chrono::milliseconds timeout)
{
    gloo::transport::tcp::attr attr;

    attr.iface = "lo";
    gloo::rendezvous::FileStore files(folder);
    gloo::rendezvous::PrefixStore store(std::to_string(meetings++), files);
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);

    context->setTimeout(std::chrono::seconds(60));
    context->connectFullMesh(store, device);
    context->setTimeout(timeout);
    return context;
}

static void run(process &p, int argc, char **argv)
{
    std::string part = argv[3];

    if (part == "every") {
        context_ptr context = p.connect();

        run_reductions(p, context);
        run_moves(p, context);
    } else if (part == "threads") {
        run_threads(p);
    } else if (part == "contexts") {
        run_contexts(p);
    } else if (part == "again") {
        run_again(p);
    } else if (part == "late") {
        run_late(p);
    } else if (part == "death") {
        run_death(p);
    } else if (part == "mismatch") {
        run_mismatch(p);
    } else if (part == "throw") {
        run_throw(p);
    } else if (part == "fork") {
        run_fork(p);
    } else if (part == "speed" && argc == 6) {
        run_speed(p, strtoul(argv[4], nullptr, 10), atoi(argv[5]));
    } else {
        wrong(p, "there is no part " + part);
    }
}

static int child(int rank, int argc, char **argv)
{
    process p = {rank, atoi(argv[1]), argv[2], nullptr};
    std::string path = p.folder + "/results." + std::to_string(rank);

    p.out = fopen(path.c_str(), "w");
    if (p.out == nullptr)
        wrong(p, "cannot write " + path);
    try {
        run(p, argc, argv);
    } catch (const std::exception &e) {
        wrong(p, std::string("unexpected: ") + e.what());
    }
    fclose(p.out);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0, status;

    if (argc < 4 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: %s RANKS FOLDER PART [BYTES TIMES]\n", argv[0]);
        return 2;
    }
    for (int rank = 0; rank < atoi(argv[1]); rank++) {
        pid_t pid = fork();

        if (pid == 0) {
            setenv("SLUICE_LOCAL_RANK", std::to_string(rank).c_str(), 1); // as a launcher tells it
            setenv("SLUICE_LOCAL_SIZE", argv[1], 1);
            return child(rank, argc, argv);
        }
        if (pid < 0) {
            perror("fork");
            return 1;
        }
    }
    while (wait(&status) > 0)
        if (status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 42)) /* a planned death */
            failed = 1;
    return failed;
}
