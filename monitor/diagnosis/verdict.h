/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rules say of a job: one accused object a verdict, or the set of those that the data
 * cannot tell apart, with the evidence. Rules add to a list; text, JSON and bundles are made of it.
 */
#ifndef SL_MONITOR_DIAGNOSIS_VERDICT_H
#define SL_MONITOR_DIAGNOSIS_VERDICT_H

#include "monitor/diagnosis/job.h"

enum sl_verdict_class {
    SL_VERDICT_NOT_HUNG,     /* nothing is wrong */
    SL_VERDICT_HOST_STALLED, /* the process does not come to issue its next operation */
    SL_VERDICT_GPU_STUCK,    /* the rank's GPU or engine does not finish what others have */
    SL_VERDICT_DEAD,         /* the process is gone */
    SL_VERDICT_COMM_STUCK,   /* all have begun, nobody goes on */
    SL_VERDICT_DEADLOCK,     /* ranks wait for each other: the program */
    SL_VERDICT_MISMATCH,     /* ranks called different things: the program */
    SL_VERDICT_SLOW_RANK,    /* its own work takes longer than that of its peers */
    SL_VERDICT_SLOW_SENDER,
    SL_VERDICT_SLOW_RECEIVER,
    SL_VERDICT_SLOW_LINK,
    SL_VERDICT_SLOW_GROUP,  /* a leaf, plane, rail or spine */
    SL_VERDICT_NODE_SILENT, /* of no job: nothing is heard of a node's agent */
    SL_VERDICT_NODE_FAULT,  /* of no job: what a node's agent found */
    SL_VERDICT_CLASSES,
    SL_VERDICT_JOB_CLASSES = SL_VERDICT_NODE_SILENT
};

enum sl_object_kind {
    SL_OBJECT_RANK,
    SL_OBJECT_HOST,
    SL_OBJECT_NIC,
    SL_OBJECT_LINK,
    SL_OBJECT_SWITCH,
    SL_OBJECT_PROGRAM,
    SL_OBJECT_RAIL, /* the same port of all hosts, with the switches that join them */
    SL_OBJECT_PLANE
};

struct sl_object {
    uint8_t kind;
    uint32_t a, b; /* a rank; of a link both ends' ranks; else SL_JOB_NONE */
    uint32_t name; /* text: a NIC, host, switch, rail, plane, a link's path, or "" */
};

#define SL_VERDICT_ID 17 /* 64 bits as hexadecimal digits */
#define SL_CAUSES_MAX 8

/* What of a node can be at fault. */
enum sl_fault {
    SL_FAULT_GPU,
    SL_FAULT_NIC,
    SL_FAULT_CABLE,
    SL_FAULT_HOST,     /* processors, memory, power, cooling, storage, kernel */
    SL_FAULT_SOFTWARE, /* the job's program or its environment: isolating the node does not help */
    SL_FAULT_FABRIC,   /* switches, and what they share: of no node */
    SL_FAULTS
};

/* What may be behind a verdict. */
struct sl_cause {
    struct sl_object object;
    uint8_t fault;
    double probability;
};

struct sl_verdict {
    uint8_t cls;
    struct sl_object accused;
    struct sl_object *others; /* that could be it as well: with accused the ambiguity set */
    uint32_t other_count;
    double probability; /* that the accused object is it */
    int64_t since_ns;   /* when it began, or SL_JOB_NEVER */
    char episode[48];   /* what is the same as long as it lasts, for its id; "": not told */
    uint32_t event;     /* of a node's fault: the agent's word, its place in job->events plus 1 */
    char **evidence;    /* sentences, the weightiest first */
    uint32_t evidence_count;

    /* What sl_fuse() (fuse.h) adds. */
    char id[SL_VERDICT_ID];  /* "": it has not run */
    struct sl_cause *causes; /* the likeliest first, at most SL_CAUSES_MAX */
    uint32_t cause_count;
    double elsewhere;        /* probability that it is none of these objects */
    uint32_t node;           /* text: the likeliest host; 0: it has no name, or there is none */
    double node_probability; /* that its hardware is at fault */
    double threshold;        /* from which on isolating a node is worth its risk */
    bool act;                /* node_probability reaches it */
};

struct sl_verdicts {
    struct sl_verdict *list;
    uint32_t count;
};

/* Adds one, without evidence and others. NULL without memory. */
struct sl_verdict *sl_verdict_add(struct sl_verdicts *verdicts, enum sl_verdict_class cls,
                                  struct sl_object accused, double probability);
int sl_verdict_other(struct sl_verdict *verdict, struct sl_object object);
__attribute__((format(printf, 2, 3))) int sl_verdict_say(struct sl_verdict *verdict,
                                                         const char *format, ...);
/* By class, then by accused object: the same verdicts in the same order, whatever came first. */
void sl_verdicts_sort(struct sl_verdicts *verdicts);
/* Those of the class, where there are others. */
void sl_verdicts_drop(struct sl_verdicts *verdicts, enum sl_verdict_class cls);
void sl_verdicts_free(struct sl_verdicts *verdicts);
const char *sl_verdict_class_name(enum sl_verdict_class cls);
const char *sl_fault_name(enum sl_fault fault); /* "gpu", "nic", "cable", "host", "software" */
/* Compares: by kind, ranks, text. */
int sl_object_order(const struct sl_object *a, const struct sl_object *b);

#endif
