/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of the gloo module: what a program's reduction function does, and sums in gloo's own
 * order. */
#ifndef SL_PRELOAD_GLOO_REDUCE_HH
#define SL_PRELOAD_GLOO_REDUCE_HH

#include "tools/preload/gloo_group.hh"

namespace sl_gloo
{

/* A reduction of size ranks, as a call describes it. */
struct reduction {
    const void *in;
    void *out; /* may be in */
    size_t elements, element_size, segment_bytes;
    const reduce_fn *reduce;
    int root; /* -1: every rank gets the result */

    size_t bytes() const
    {
        return elements * element_size;
    }
};

/*
 * How the engine is to run it. Type and operator are not written in a call: there is a function,
 * mostly one of gloo::sum<T> and its like, whose addresses mean nothing from outside. So it is
 * tried on numbers that tell the types and operators apart, once per function. What none of them
 * explains (a bitwise operator, a program's own function) is run by itself, in a chain; so is what
 * would be rounded otherwise than by gloo, unless SLUICE_PRELOAD_EXACT=off.
 */
manner manner_of(const reduction &r, int ranks);

/*
 * Both return 0 or a negative errno, after all ranks have called them on the lane.
 *
 * run_chain() adds in the order in which gloo's ring does, with the program's own function, so that
 * its results are those of gloo to the last bit, whatever the function: the elements fall into a
 * block per rank, and block b is reduced as b-1, b-2, … 0, n-1, … b. Here rank b does it all, with
 * one exchange before and one after.
 */
int run_engine(lane &lane, const reduction &r, const manner &how);
int run_chain(const group &group, lane &lane, const reduction &r);

/* Room for bytes in the lane, for one call. */
uint8_t *scratch(lane &lane, size_t bytes);

} // namespace sl_gloo

#endif
