/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent of one host: its sources, what they say to the engine, and where that goes.
 *
 *     sources --> engine.c --> transitions --> store.c        on the disk, then
 *     (source.h)                                 +--> events     lines of JSON, at least once
 *                                                +--> metrics.c  when somebody asks
 *
 * One thread. The owner waits for sl_agent_fd() to be readable and calls sl_agent_turn(), and calls
 * sl_agent_tick() once a period.
 */
#ifndef SL_MONITOR_AGENT_H
#define SL_MONITOR_AGENT_H

#include "monitor/config.h"
#include "monitor/metrics.h"
#include "monitor/store.h"

struct json_object;
struct sl_probing_wish;

struct sl_agent;
struct sl_mon_ranks;

struct sl_agent_options {
    const struct sl_mon_config *config; /* copied */
    const char *version;                /* a constant */
    /* What time it is, and which boot; NULL: the machine's own. */
    void (*now)(void *arg, struct sl_mon_time *out);
    void *arg;
    const char *boot_id;
};

/* A source that cannot be had is no error: it is down, with a reason, and tried again. The store
 * has to be there. */
int sl_agent_open(const struct sl_agent_options *options, struct sl_agent **out);
void sl_agent_close(struct sl_agent *agent);

int sl_agent_fd(const struct sl_agent *agent);
/* Takes what sources have to say. */
void sl_agent_turn(struct sl_agent *agent);
/* Reads counters, tries again what is down, lets what is quiet calm down, writes events. */
void sl_agent_tick(struct sl_agent *agent);

/* Is every source that is asked for alive? Else why names those that are not. */
bool sl_agent_is_fresh(struct sl_agent *agent, char *why, size_t cap);
bool sl_agent_metrics(struct sl_agent *agent, enum sl_mon_format format, FILE *out);
/* Of the probe of that number: "up"; "off", "absent", which are no alarm; "down", "stale". */
const char *sl_agent_probe_state(struct sl_agent *agent, unsigned i);
const struct sl_mon_config *sl_agent_config(const struct sl_agent *agent);
const char *sl_agent_version(const struct sl_agent *agent);
/* Since it began, or read its configuration again. */
uint64_t sl_agent_up_ns(const struct sl_agent *agent);
/* When that was, by the wall clock as it went then, in ms. */
uint64_t sl_agent_epoch_ms(const struct sl_agent *agent);
/* Is a bundle written, and not full yet? */
bool sl_agent_records(const struct sl_agent *agent);
/* Is the file that was read last in force? */
bool sl_agent_config_is_good(const struct sl_agent *agent);
/* The configuration was read again; false: it is refused, and this one stays in force. */
void sl_agent_reloaded(struct sl_agent *agent, bool good);
struct sl_mon *sl_agent_mon(struct sl_agent *agent);
/* That sources share; nobody is in it while none of them watches it. */
const struct sl_mon_ranks *sl_agent_ranks(const struct sl_agent *agent);
struct sl_mon_store *sl_agent_store(struct sl_agent *agent);
const struct sl_mon_probe *sl_agent_probes(struct sl_agent *agent, unsigned *count);
/* The ports of all sources: how many, at most so many. */
unsigned sl_agent_ports(struct sl_agent *agent, const struct sl_mon_port **out, unsigned most);
/* What the sources of that name (NULL: all) add to an answer. False: there is none. */
bool sl_agent_json(struct sl_agent *agent, const char *name, struct json_object *out);
/* Asks for a probe: its number. As sl_probing_ask(). */
int sl_agent_probe(struct sl_agent *agent, const struct sl_probing_wish *wish, uint64_t *id);
/* Something was said while it was opened, for people: a store that was set aside. */
const char *sl_agent_note(const struct sl_agent *agent);

#endif
