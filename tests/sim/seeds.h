/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a swarm: which seeds are run, and what is told of them. */
#ifndef SL_TESTS_SIM_SEEDS_H
#define SL_TESTS_SIM_SEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seeds {
    const char *name;
    /* Runs one. False: it does not end as it must, and why says how. tell: prints what was drawn
     * and came of it; trace: and what happens on the way. */
    bool (*run)(uint64_t seed, bool tell, bool trace, char *why, size_t cap);
    uint64_t (*now_ns)(void); /* a run's time, printed before what is logged in it; or NULL */
};

/* Does what the arguments say, and returns the status of the process:
 *     [--from N] [--count N]   runs so many seeds (TAP on stdout)
 *     --seed N [--trace]       runs one, and tells what it did */
int seeds_main(const struct seeds *seeds, int argc, char **argv);

/* Nothing is logged from now on. */
void seeds_quiet(void);

#endif
