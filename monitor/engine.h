/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of one host: its subjects, the condition of each check of each, and what changed.
 *
 * Sources and rules put samples in, the store and the outputs take transitions out. Nothing here
 * reads a clock or a file: the owner says what time it is, so that a day can be replayed in a
 * second. One thread.
 */
#ifndef SL_MONITOR_ENGINE_H
#define SL_MONITOR_ENGINE_H

#include "monitor/check.h"

#include <stddef.h>

#define SL_MON_NAME 64
#define SL_MON_TEXT 256
#define SL_MON_BOOT_ID 40
#define SL_MON_IN_USE_NS (60 * SL_MON_S) /* after traffic was seen last */

struct sl_mon;

struct sl_mon_time {
    uint64_t mono_ns; /* CLOCK_MONOTONIC: never goes back, whoever sets the date */
    uint64_t wall_ns; /* CLOCK_REALTIME: for people */
    uint64_t boot_ns; /* since the host booted */
};

/* What a sample is based on. */
struct sl_mon_evidence {
    const char *source;     /* "rtnetlink", "sysfs", "kmsg"; a constant */
    uint64_t before, after; /* of the counter that it is about; 0, 0: of none */
    char text[SL_MON_TEXT]; /* a sentence, with what was read */
};

/* Events of one condition: so many at once, and so many a second. */
#define SL_MON_EVENTS_AT_ONCE 64
#define SL_MON_EVENTS_PER_S 2

struct sl_mon_bucket {
    uint64_t since_ns; /* when taken last fell; it falls by SL_MON_EVENTS_PER_S each second */
    uint32_t taken, withheld;
};

struct sl_mon_subject {
    enum sl_mon_kind kind;
    char name[SL_MON_NAME];
    char label[SL_MON_TEXT];   /* what it is, for people: "rank 3 of job 17"; may be empty */
    uint64_t seen_ns, used_ns; /* was there; carried something */
    uint32_t clears;           /* by an operator: what is expected of it is learnt anew */
    struct sl_mon_condition *conditions; /* of the checks of its kind, in their order */
    struct sl_mon_evidence *evidence;    /* the latest bad sample of each */
    struct sl_mon_bucket *buckets;       /* of their events */
};

/*
 * What changed. Or, where step.from is step.to, an event: one more bad sample of a quiet check,
 * such as a flap of a link that is known to flap.
 */
struct sl_mon_transition {
    uint64_t id; /* from 1, without a gap, over restarts too */
    struct sl_mon_time time;
    char boot_id[SL_MON_BOOT_ID];
    const struct sl_mon_subject *subject; /* borrowed */
    enum sl_mon_check check;
    struct sl_mon_step step;
    const struct sl_mon_evidence *evidence; /* borrowed */
    double history;                         /* of that condition, after it */
};

/* What was put in: of each kind what belongs to it. All is borrowed. */
struct sl_mon_input_record {
    enum {
        SL_MON_PUT_BOOT,    /* boot_id */
        SL_MON_PUT_SUBJECT, /* a new one: kind, name */
        SL_MON_PUT_FORGET,  /* from here on, subject has kind and name */
        SL_MON_PUT_USE,
        SL_MON_PUT_CLEAR,
        SL_MON_PUT_SAMPLE,  /* check, is_bad, evidence (NULL: none) */
        SL_MON_PUT_RESTORE, /* check, condition */
        SL_MON_PUT_CALM     /* check alone */
    } what;
    enum sl_mon_kind kind;
    const char *name, *boot_id;
    enum sl_mon_check check;
    bool is_bad;
    const struct sl_mon_evidence *evidence;
    const struct sl_mon_condition *condition;
};

struct sl_mon_options {
    size_t subjects_max;
    uint64_t next_id; /* of the next transition: one more than the store has */
    void (*on_transition)(void *arg, const struct sl_mon_transition *transition);
    /* After the last transition of a subject that is forgotten; NULL: nobody cares. */
    void (*on_forget)(void *arg, const struct sl_mon_subject *subject);
    /* Before anything is made of it; the time is sl_mon_time()'s. The same again, at the same
     * times, leads to the same transitions. NULL: nobody records it. */
    void (*on_input)(void *arg, const struct sl_mon_input_record *input);
    void *arg;
};

/* -ENOMEM, -EINVAL. */
int sl_mon_create(const struct sl_mon_options *options, struct sl_mon **out);
void sl_mon_destroy(struct sl_mon *mon);

/* What time it is, for all that follows. A monotonic time before the last one counts as that. */
void sl_mon_set_time(struct sl_mon *mon, const struct sl_mon_time *time);
const struct sl_mon_time *sl_mon_time(const struct sl_mon *mon);
/* The host's boot. Another one than before: all conditions begin anew, their history stays. */
void sl_mon_set_boot(struct sl_mon *mon, const char *boot_id);
const char *sl_mon_boot(const struct sl_mon *mon); /* "": not known */

/* Found, or new; NULL: there is room for no more (counted in sl_mon_left_out()). */
struct sl_mon_subject *sl_mon_subject(struct sl_mon *mon, enum sl_mon_kind kind, const char *name);
struct sl_mon_subject *sl_mon_find(struct sl_mon *mon, enum sl_mon_kind kind, const char *name);
uint64_t sl_mon_left_out(const struct sl_mon *mon);
/* It is over (a process that ended): what was wrong with it ends, and its history with it. */
void sl_mon_forget(struct sl_mon *mon, struct sl_mon_subject *subject);
/* It carries something now. */
void sl_mon_use(struct sl_mon *mon, struct sl_mon_subject *subject);
bool sl_mon_in_use(const struct sl_mon *mon, const struct sl_mon_subject *subject);

/* evidence may be NULL for a good sample. A check of another kind of subject is our mistake. A bad
 * sample of a quiet check that changes no state is an event to on_transition() all the same. Those
 * beyond SL_MON_EVENTS_AT_ONCE are counted, and the next one gives the count. */
void sl_mon_sample(struct sl_mon *mon, struct sl_mon_subject *subject, enum sl_mon_check check,
                   bool is_bad, const struct sl_mon_evidence *evidence);
/* The source of a check was alive since the last time: quiet conditions of that check calm down. */
void sl_mon_calm(struct sl_mon *mon, enum sl_mon_check check);
/* An operator: of one subject, of all its checks. False: nothing was wrong. */
bool sl_mon_clear(struct sl_mon *mon, struct sl_mon_subject *subject);

/* What the store had of a condition when the agent ended: no transition. */
void sl_mon_restore(struct sl_mon *mon, struct sl_mon_subject *subject, enum sl_mon_check check,
                    const struct sl_mon_condition *condition);

/* The first, and the one after; NULL: there are no more. */
const struct sl_mon_subject *sl_mon_next(const struct sl_mon *mon,
                                         const struct sl_mon_subject *subject);
const struct sl_mon_condition *sl_mon_condition(const struct sl_mon_subject *subject,
                                                enum sl_mon_check check);
/* The worst of its conditions. */
enum sl_mon_state sl_mon_subject_state(const struct sl_mon_subject *subject);
/* The checks of a kind: the first, and how many. */
unsigned sl_mon_checks_of(enum sl_mon_kind kind, enum sl_mon_check *first);

#endif
