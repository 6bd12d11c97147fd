/* SPDX-License-Identifier: Apache-2.0 */
/* What fuse.c, which sums, and fuse_say.c, which words it, share. */
#ifndef SL_MONITOR_DIAGNOSIS_FUSE_INSIDE_H
#define SL_MONITOR_DIAGNOSIS_FUSE_INSIDE_H

#include "monitor/diagnosis/evidence.h"
#include "monitor/diagnosis/fuse.h"
#include "monitor/diagnosis/priors.h"

struct sl_fuse {
    const struct sl_job *job;
    const struct sl_fuse_options *options;
    struct sl_lemons lemons;
    struct sl_evidence_list evidence; /* of the verdict that is being fused */
    int64_t when_ns;
    bool has_evidence;
    uint32_t *hosts; /* of the job, each once, by name */
    uint32_t host_count;
};

struct sl_weighed {
    struct sl_object object;
    double parts[SL_FAULTS], weight;
    uint32_t at; /* in the order of the rule: below the size of its set, it is of that */
};

struct sl_sum {
    struct sl_weighed *objects;
    uint32_t count;
    double elsewhere, all;
};

/* 0: it is on no host that is known. */
uint32_t sl_fuse_host_of(const struct sl_job *job, const struct sl_object *object);
/* Of a NIC, or of a link by name: its device, as ports are named by; of a rank its process; ""
 * otherwise. */
const char *sl_fuse_device_of(const struct sl_job *job, const struct sl_object *object);
/* What was told of the likeliest object, and of its node's history, as evidence. -ENOMEM. */
int sl_fuse_say(const struct sl_fuse *fuse, struct sl_verdict *verdict, const struct sl_sum *sum);

#endif
