/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps of a delay matrix: characters for a terminal, and SVG. */
#ifndef SLUICE_CTL_HEAT_H
#define SLUICE_CTL_HEAT_H

#include <stdint.h>
#include <stdio.h>

/* size x size fields, each of `ranks_each` senders by as many receivers. */
struct sc_heat {
    uint32_t size, rank_count, ranks_each;
    float *ratio; /* [row * size + column]: the most in it, to what is expected; 0: no message */
};

void sc_heat_text(const struct sc_heat *heat, FILE *out);
void sc_heat_svg(const struct sc_heat *heat, FILE *out);

#endif
