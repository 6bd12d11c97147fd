/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent must not forget: transitions, the conditions that they led to, and how far each
 * output has taken them. One SQLite file, in WAL mode; what has been stored is on the disk.
 *
 * A verdict is what a condition that is BAD means for others: it begins with the transition that
 * led there, whose number it has, and ends when the condition is OK again.
 *
 * A transition that cannot be stored (the disk is full) waits, with those after it, in a queue;
 * what finds no room there is lost, and counted.
 *
 * A file that is damaged is set aside, under another name and for people to look at, and a new one
 * begins. The oldest transitions give way once there are too many.
 */
#ifndef SL_MONITOR_STORE_H
#define SL_MONITOR_STORE_H

#include "monitor/engine.h"

struct sl_mon_store;

struct sl_mon_store_options {
    uint64_t transitions_max; /* kept */
    uint64_t bytes_max;       /* of the file; 0: any */
};

/* A transition as it was stored. */
struct sl_mon_record {
    uint64_t id;
    uint64_t wall_ns, mono_ns;
    char boot_id[SL_MON_BOOT_ID];
    char kind[16], subject[SL_MON_NAME], check[32], condition[32];
    char from[16], to[16], cause[32], source[32];
    uint64_t before, after;
    char text[SL_MON_TEXT];
    double history;
};

struct sl_mon_verdict {
    uint64_t id;                             /* of the transition that opened it */
    uint64_t opened_ns, closed_ns, acked_ns; /* wall clock; 0: not yet */
    char acked_by[64], boot_id[SL_MON_BOOT_ID];
    char kind[16], subject[SL_MON_NAME], check[32], condition[32];
    bool is_fatal; /* SL_MON_FATAL, as of when it was opened */
    char text[SL_MON_TEXT];
};

/* Opens or makes the file. set_aside, of so many bytes, gets the name of a damaged one, or "".
 * -EACCES, -ENOSPC, -EIO, with a sentence. */
int sl_mon_store_open(const char *path, const struct sl_mon_store_options *options,
                      struct sl_mon_store **out, char *set_aside, size_t cap);
void sl_mon_store_close(struct sl_mon_store *store);

/* The number of the next transition. */
uint64_t sl_mon_store_next(const struct sl_mon_store *store);
/* The transition, the condition after it and what becomes of its verdict, or none of it. On return
 * all is on the disk. -ENOSPC, -EIO: it waits for sl_mon_store_retry(). */
int sl_mon_store_put(struct sl_mon_store *store, const struct sl_mon_transition *transition);
/* Stores what waits, in its order. 0: nothing waits any more. */
int sl_mon_store_retry(struct sl_mon_store *store);
unsigned sl_mon_store_waiting(const struct sl_mon_store *store);
uint64_t sl_mon_store_lost(const struct sl_mon_store *store);
/* Nothing will ever be said of that subject again: its conditions go. */
int sl_mon_store_forget(struct sl_mon_store *store, const struct sl_mon_subject *subject);
/* Those from a number on, at most so many, in their order; how many, or a negative errno. */
int sl_mon_store_list(struct sl_mon_store *store, uint64_t from, struct sl_mon_record *out,
                      unsigned most);
/* Gives each condition that is stored to its subject in mon, which gets it if it has it not; the
 * boot that they are of goes to mon first, so that another one resets them. A verdict of a
 * condition that mon has not, as BAD or RECOVERING, ends, as of wall_ns. */
int sl_mon_store_restore(struct sl_mon_store *store, struct sl_mon *mon, uint64_t wall_ns);
int sl_mon_store_boot(struct sl_mon_store *store, const char *boot_id);
/* A number that a source keeps within one boot, over restarts of the agent. recall: 0 if there is
 * none of this boot. */
int sl_mon_store_note(struct sl_mon_store *store, const char *key, const char *boot_id,
                      uint64_t value);
uint64_t sl_mon_store_recall(struct sl_mon_store *store, const char *key, const char *boot_id);

/* Those from a number on, all or those that are open, at most so many, in their order; how many. */
int sl_mon_store_verdicts(struct sl_mon_store *store, uint64_t from, bool only_open,
                          struct sl_mon_verdict *out, unsigned most);
/* An operator has seen it. -ENOENT. Once more: the first one stays. */
int sl_mon_store_verdict_ack(struct sl_mon_store *store, uint64_t id, uint64_t wall_ns,
                             const char *who);

/* How far an output has got: the last number that it took; 0: none. */
int sl_mon_store_acked(struct sl_mon_store *store, const char *output, uint64_t *out);
int sl_mon_store_ack(struct sl_mon_store *store, const char *output, uint64_t id);

#endif
