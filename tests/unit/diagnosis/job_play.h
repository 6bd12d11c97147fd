/* SPDX-License-Identifier: Apache-2.0 */
/* A training job that is played until one rank's fault has stopped it: tensor, pipeline and data
 * parallel, the host some calls ahead of the GPU. */
#ifndef SL_TESTS_DIAGNOSIS_JOB_PLAY_H
#define SL_TESTS_DIAGNOSIS_JOB_PLAY_H

#include <stdbool.h>
#include <stdint.h>

struct sl_job;

struct play {
    uint32_t tensor, stages, replicas; /* their product is the number of ranks */
    uint32_t ahead;                    /* calls that a host is before its GPU, at most */
    uint32_t fault_rank, fault_at;     /* at which of its calls */
    bool is_gpu;     /* the GPU never ends that call; else the host never comes to it */
    bool is_seq_own; /* messages are counted as PyTorch does */
};

/* How many calls the rank makes, and whether the one at `at` is a collective. */
uint32_t play_length(const struct play *play, uint32_t rank);
bool play_is_collective(const struct play *play, uint32_t rank, uint32_t at);
/* The job as it stands; the caller's. */
struct sl_job *play_job(const struct play *play);

#endif
