/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of Sluice that trains for ever: each step is an allreduce of all ranks, one of each half
 * of them, and, where INJECT_PAIR_BYTES is more than 0, an all_to_all with so many bytes to each.
 *
 * SLUICE_RANK, SLUICE_SIZE and SLUICE_ROOT say who it is; INJECT_BYTES is of the allreduce.
 */
#include "inject_work.h"

#include <sluice/sluice.h>

#include <string.h>

struct buffers {
    float *in, *out;
    size_t count, pair;
};

static int complain(const char *what)
{
    fprintf(stderr, "inject_ranks: %s: %s\n", what, sluice_last_error());
    return 1;
}

static int step(struct sluice_comm *all, struct sluice_comm *half, const struct buffers *at)
{
    int err;

    if (inject_takes_other())
        err = sluice_broadcast(all, at->in, at->out, at->count, SLUICE_F32, 0, NULL);
    else
        err = sluice_allreduce(all, at->in, at->out, at->count, SLUICE_F32, SLUICE_SUM, NULL);
    if (err == 0 && at->pair > 0)
        err = sluice_all_to_all(all, at->in, at->out, at->pair, SLUICE_F32, NULL);
    if (err == 0)
        err = sluice_allreduce(half, at->in, at->out, 256, SLUICE_F32, SLUICE_SUM, NULL);
    return err;
}

static int run(struct sluice_comm *all)
{
    int rank = sluice_comm_rank(all), size = sluice_comm_size(all), err = 0;
    struct buffers at = {.count = (size_t)inject_number("INJECT_BYTES", 65536) / sizeof(float),
                         .pair = (size_t)inject_number("INJECT_PAIR_BYTES", 0) / sizeof(float)};
    size_t most = at.pair * (size_t)size > at.count ? at.pair * (size_t)size : at.count;
    struct sluice_comm *half;

    most = most > 256 ? most : 256;
    at.in = calloc(most, sizeof(*at.in));
    at.out = calloc(most, sizeof(*at.out));
    if (at.in == NULL || at.out == NULL)
        return complain("no memory");
    if (sluice_comm_split(all, rank * 2 / size, rank, &half) != 0)
        return complain("it cannot split");
    for (int i = 0; err == 0; i++) {
        inject_say_step(i, rank);
        inject_compute();
        err = step(all, half, &at);
    }
    complain("an operation failed");
    pause(); /* as a program that does not notice */
    return 1;
}

int main(void)
{
    struct sluice_comm *all;

    inject_begin();
    if (sluice_comm_from_env(&all) != 0)
        return complain("it cannot start");
    return run(all);
}
