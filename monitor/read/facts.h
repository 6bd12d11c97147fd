/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an observation of a node says (monitor/observe.h), taken out of its JSON: bytes from outside
 * become numbers within bounds and texts that end and have nothing to move a terminal by. What is
 * not understood is left out; what is damaged is refused.
 */
#ifndef SL_MONITOR_READ_FACTS_H
#define SL_MONITOR_READ_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

#define SL_FACTS_VERDICTS 64 /* of a node; more are left out, as are those of the next lines */
#define SL_FACTS_PORTS 512
#define SL_FACTS_RANKS 512
#define SL_FACTS_COMMS 64 /* of a rank */
#define SL_FACTS_PATHS 64
#define SL_FACTS_SIZE_MAX (1u << 20) /* ranks of a job */

/* An open verdict of the agent's own. */
struct sl_fact_verdict {
    uint64_t id;
    int64_t opened_ms;
    bool is_fatal, is_acked;
    char kind[16], subject[64], check[32], cls[32], text[256];
};

struct sl_fact_port {
    char subject[64], state[16];
    int8_t up; /* 1, 0; -1: not known */
    uint64_t speed, sent, received, flaps, errors;
};

struct sl_fact_comm {
    uint64_t id;
    uint32_t rank, size;
    uint64_t begun, ended; /* collectives */
    bool is_broken;
    int32_t culprit; /* rank in it, or -1 */
};

/* The operation that a rank waits in. */
struct sl_fact_op {
    bool is_there;
    uint64_t comm, number, elements;
    int32_t peer; /* that it waits for, a rank of comm; -1: nobody in particular */
    int64_t for_ms, idle_ms;
    char coll[16], type[8], doing[24];
};

struct sl_fact_path {
    uint64_t comm; /* 0: not known */
    int32_t peer;  /* a rank of comm */
    uint64_t sent, messages, resent, failures, message_ns;
    uint64_t arriving_messages, arriving_ns; /* of which it waited for a rest; over TCP */
    char name[64], state[16];
};

struct sl_fact_rank {
    char job[64], program[16];
    uint32_t rank, size;
    int32_t pid;
    bool is_stopped; /* its process, by a signal */
    struct sl_fact_op op;
    struct sl_fact_comm *comms;
    struct sl_fact_path *paths;
    unsigned comm_count, path_count;
};

struct sl_facts {
    char name[65];               /* whose they are */
    uint64_t epoch;              /* the newest start of its agent; 0: it was never heard of */
    int64_t status_ms, ranks_ms; /* when it said so, by its wall clock */
    bool is_fresh;               /* its agent has all of its sources */
    char health[16], version[32], why[256];
    struct sl_fact_verdict *verdicts;
    struct sl_fact_port *ports;
    struct sl_fact_rank *ranks;
    unsigned verdict_count, port_count, rank_count;
};

/* Each puts its part in place of what was there. body: an object. -ENOMEM, -EBADMSG. */
int sl_facts_status(struct sl_facts *facts, struct json_object *body);
int sl_facts_ports(struct sl_facts *facts, struct json_object *body);
int sl_facts_ranks(struct sl_facts *facts, struct json_object *body);
void sl_facts_fini(struct sl_facts *facts);
/* Memory of it, in bytes. */
size_t sl_facts_bytes(const struct sl_facts *facts);

#endif
