/* SPDX-License-Identifier: Apache-2.0 */
/* Edges, ports and routes of any content: the rule comes to an end, with numbers that are
 * finite. */
#include "core/err.h"
#include "monitor/diagnosis/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RANKS 12
#define EDGE 16 /* bytes of the input that make one */

static void add_edge(struct sl_job *job, const uint8_t *bytes)
{
    struct sl_job_edge edge = {
        .src = bytes[0] % RANKS, .dst = bytes[1] % RANKS, .path = bytes[2] % 8};

    edge.messages = bytes[3] > 250 ? UINT64_MAX : bytes[3];
    edge.bytes = bytes[4] > 250 ? UINT64_MAX : (uint64_t)bytes[4] << (bytes[5] % 50);
    edge.lost = bytes[6];
    memcpy(&edge.wait_s[SL_JOB_WAIT_WIRE], bytes + 8, 8); /* any double there is */
    if (bytes[7] % 2 == 0)
        edge.wait_s[SL_JOB_WAIT_WIRE] = (bytes[8] + 1) * 1e-4;
    edge.wait_s[SL_JOB_WAIT_FLUSH] = bytes[7] % 3 == 0 ? edge.wait_s[SL_JOB_WAIT_WIRE] : 0;
    sl_assert(sl_job_add_edge(job, &edge) == 0);
    if (bytes[6] % 4 == 1) {
        struct sl_job_route route = {.src = edge.src, .dst = edge.dst, .via = 1 + bytes[6] % 5};

        sl_assert(sl_job_add_route(job, &route) == 0);
    }
    if (bytes[6] % 4 == 2) {
        struct sl_job_port port = {
            .host = 1 + bytes[0] % 4, .device = edge.path, .leaf = 1 + bytes[1] % 6};

        sl_assert(sl_job_add_port(job, &port) == 0);
        job->ranks[edge.src].host = port.host;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sl_comm_options options = SL_COMM_OPTIONS;
    struct sl_verdicts verdicts = {0};
    struct sl_job *job = sl_job_new();

    sl_assert(job != NULL && sl_job_add_rank(job, RANKS - 1) == 0);
    for (uint32_t i = 0; i < 7; i++)
        sl_assert(sl_job_text(job, &"abcdefg"[i], 1) == i + 1);
    for (size_t at = 0; at + EDGE <= size; at += EDGE)
        add_edge(job, data + at);
    sl_assert(sl_job_seal(job) == 0);
    sl_assert(sl_comm_find(job, &options, &verdicts) == 0);
    for (uint32_t i = 0; i < verdicts.count; i++) {
        double probability = verdicts.list[i].probability;

        sl_assert(isfinite(probability) && probability >= 0 && probability <= 1);
    }
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return 0;
}
