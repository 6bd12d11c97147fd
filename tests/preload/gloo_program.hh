/* SPDX-License-Identifier: Apache-2.0 */
/* A program of several processes on the installed gloo, for the tests of the preload shim: what its
 * parts share. */
#ifndef GLOO_PROGRAM_HH
#define GLOO_PROGRAM_HH

#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/types.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include <unistd.h>

using context_ptr = std::shared_ptr<gloo::Context>;

/* A process of the job. */
struct process {
    int rank, size;
    std::string folder; /* where ranks meet */
    FILE *out;          /* results that must be the same with and without the shim */
    int meetings = 0;

    /* All ranks connect, anew each time. */
    context_ptr connect(std::chrono::milliseconds timeout = std::chrono::seconds(60));
};

[[noreturn]] inline void wrong(const process &p, const std::string &what)
{
    fprintf(stderr, "rank %d: %s\n", p.rank, what.c_str());
    fflush(stderr);
    _exit(1);
}

/* FNV-1a. */
inline uint64_t digest(const void *data, size_t len, uint64_t hash = UINT64_C(0xcbf29ce484222325))
{
    const unsigned char *bytes = static_cast<const unsigned char *>(data);

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* gloo_reductions.cc: types, operators, sizes, forms of the calls. */
void run_reductions(process &p, const context_ptr &context);
/* gloo_moves.cc: calls that move elements. */
void run_moves(process &p, const context_ptr &context);
/* gloo_stories.cc */
void run_threads(process &p);
void run_contexts(process &p);
void run_again(process &p);
void run_late(process &p);
void run_death(process &p);
void run_throw(process &p);
void run_mismatch(process &p);
void run_fork(process &p);
void run_speed(process &p, size_t bytes, int times);

#endif
