/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/contract/stage_virtual.h"

#include "core/err.h"

#include <stdio.h>

#define PASS_NS 2000
#define LONG_NS SL_NS_PER_MS /* once it has been quiet for long: what is awaited is a time limit */

struct loop *stage_loop;
struct sl_config stage_config[STAGE_WORKERS];
static struct sl_worker workers[STAGE_WORKERS];
static unsigned still; /* rounds in which nothing moved */

void stage_virtual_check(void)
{
    if (stage_loop == NULL)
        return;
    if (loop_misuse(stage_loop) != NULL)
        fprintf(stderr, "%s\n", loop_misuse(stage_loop));
    sl_assert(loop_misuse(stage_loop) == NULL && loop_live(stage_loop) == 0);
    loop_destroy(stage_loop);
    stage_loop = NULL;
}

void stage_virtual_reset(uint32_t eagain_in)
{
    stage_loop = loop_create(7);
    loop_weather(stage_loop, 5000, 20000, eagain_in);
    for (unsigned i = 0; i < STAGE_WORKERS; i++) {
        sl_config_defaults(&stage_config[i]);
        stage_config[i].connect_timeout_ms = 2000;
        workers[i] = (struct sl_worker){
            .clock = loop_clock(stage_loop), .config = &stage_config[i], .rank = (int)i};
        sl_rng_init(&workers[i].rng, i + 1);
    }
    still = 0;
}

struct sl_worker *stage_worker(unsigned idx)
{
    return &workers[idx];
}

void stage_idle(void)
{
    still++;
    loop_pass(stage_loop, still % 1000 < 900 ? PASS_NS : LONG_NS);
}

uint64_t stage_now(void)
{
    return loop_now(stage_loop);
}
