/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/engine.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_mon {
    struct sl_mon_options options;
    struct sl_mon_time time;
    char boot_id[SL_MON_BOOT_ID];
    uint64_t left_out;
    size_t count;
    struct sl_mon_subject *subjects[]; /* NULL: a place that is free */
};

/* ---- its life ---- */

int sl_mon_create(const struct sl_mon_options *options, struct sl_mon **out)
{
    struct sl_mon *mon;

    if (options->subjects_max == 0 || options->on_transition == NULL)
        return sl_fail(-EINVAL, "a monitor needs room for subjects, and somebody to tell");
    mon = calloc(1, sizeof(*mon) + options->subjects_max * sizeof(mon->subjects[0]));
    if (mon == NULL)
        return sl_fail(-ENOMEM, "no memory for %zu subjects", options->subjects_max);
    mon->options = *options;
    if (mon->options.next_id == 0)
        mon->options.next_id = 1;
    *out = mon;
    return 0;
}

static void subject_free(struct sl_mon_subject *subject)
{
    if (subject == NULL)
        return;
    free(subject->conditions);
    free(subject->evidence);
    free(subject->buckets);
    free(subject);
}

void sl_mon_destroy(struct sl_mon *mon)
{
    if (mon == NULL)
        return;
    for (size_t i = 0; i < mon->count; i++)
        subject_free(mon->subjects[i]);
    free(mon);
}

void sl_mon_set_time(struct sl_mon *mon, const struct sl_mon_time *time)
{
    uint64_t before_ns = mon->time.mono_ns;

    mon->time = *time;
    if (mon->time.mono_ns < before_ns)
        mon->time.mono_ns = before_ns;
}

/* ---- what is recorded ---- */

static void put(const struct sl_mon *mon, const struct sl_mon_input_record *input)
{
    if (mon->options.on_input != NULL)
        mon->options.on_input(mon->options.arg, input);
}

static void put_subject(const struct sl_mon *mon, int what, const struct sl_mon_subject *subject)
{
    const struct sl_mon_input_record input = {
        .what = what, .kind = subject->kind, .name = subject->name};

    put(mon, &input);
}

const struct sl_mon_time *sl_mon_time(const struct sl_mon *mon)
{
    return &mon->time;
}

/* ---- checks of a kind ---- */

unsigned sl_mon_checks_of(enum sl_mon_kind kind, enum sl_mon_check *first)
{
    unsigned count = 0;

    *first = 0;
    for (unsigned i = SL_MON_CHECK_COUNT; i-- > 0;)
        if (sl_mon_checks[i].kind == kind) {
            *first = (enum sl_mon_check)i;
            count++;
        }
    return count;
}

/* -1: the subject is of another kind. */
static int place_of(const struct sl_mon_subject *subject, enum sl_mon_check check)
{
    enum sl_mon_check first;
    unsigned count = sl_mon_checks_of(subject->kind, &first);

    return check >= first && check < first + count ? (int)(check - first) : -1;
}

const struct sl_mon_condition *sl_mon_condition(const struct sl_mon_subject *subject,
                                                enum sl_mon_check check)
{
    int place = place_of(subject, check);

    return place < 0 ? NULL : &subject->conditions[place];
}

enum sl_mon_state sl_mon_subject_state(const struct sl_mon_subject *subject)
{
    static const uint8_t weight[SL_MON_STATES] = {
        [SL_MON_OK] = 0, [SL_MON_RECOVERING] = 1, [SL_MON_SUSPECT] = 2, [SL_MON_BAD] = 3};
    enum sl_mon_state worst = SL_MON_OK;
    enum sl_mon_check first;
    unsigned count = sl_mon_checks_of(subject->kind, &first);

    for (unsigned i = 0; i < count; i++)
        if (weight[subject->conditions[i].state] > weight[worst])
            worst = (enum sl_mon_state)subject->conditions[i].state;
    return worst;
}

/* ---- subjects ---- */

struct sl_mon_subject *sl_mon_find(struct sl_mon *mon, enum sl_mon_kind kind, const char *name)
{
    for (size_t i = 0; i < mon->count; i++) {
        struct sl_mon_subject *subject = mon->subjects[i];

        if (subject != NULL && subject->kind == kind && strcmp(subject->name, name) == 0)
            return subject;
    }
    return NULL;
}

static struct sl_mon_subject *subject_new(const struct sl_mon *mon, enum sl_mon_kind kind,
                                          const char *name)
{
    struct sl_mon_subject *subject = calloc(1, sizeof(*subject));
    enum sl_mon_check first;
    unsigned count = sl_mon_checks_of(kind, &first);

    if (subject == NULL)
        return NULL;
    subject->kind = kind;
    snprintf(subject->name, sizeof(subject->name), "%s", name);
    subject->conditions = calloc(count, sizeof(*subject->conditions));
    subject->evidence = calloc(count, sizeof(*subject->evidence));
    subject->buckets = calloc(count, sizeof(*subject->buckets));
    if (subject->conditions == NULL || subject->evidence == NULL || subject->buckets == NULL) {
        subject_free(subject);
        return NULL;
    }
    for (unsigned i = 0; i < count; i++)
        sl_mon_condition_init(&subject->conditions[i], mon->time.mono_ns);
    return subject;
}

struct sl_mon_subject *sl_mon_subject(struct sl_mon *mon, enum sl_mon_kind kind, const char *name)
{
    struct sl_mon_subject *subject = sl_mon_find(mon, kind, name);
    size_t place = 0;

    if (subject != NULL) {
        subject->seen_ns = mon->time.mono_ns;
        return subject;
    }
    while (place < mon->count && mon->subjects[place] != NULL)
        place++;
    subject = place < mon->options.subjects_max && strlen(name) < SL_MON_NAME
                  ? subject_new(mon, kind, name)
                  : NULL;
    if (subject == NULL) {
        mon->left_out++;
        return NULL;
    }
    put_subject(mon, SL_MON_PUT_SUBJECT, subject);
    subject->seen_ns = mon->time.mono_ns;
    mon->subjects[place] = subject;
    if (place == mon->count)
        mon->count++;
    return subject;
}

uint64_t sl_mon_left_out(const struct sl_mon *mon)
{
    return mon->left_out;
}

void sl_mon_use(struct sl_mon *mon, struct sl_mon_subject *subject)
{
    if (subject->used_ns != mon->time.mono_ns)
        put_subject(mon, SL_MON_PUT_USE, subject);
    subject->used_ns = mon->time.mono_ns;
}

bool sl_mon_in_use(const struct sl_mon *mon, const struct sl_mon_subject *subject)
{
    return subject->used_ns != 0 && mon->time.mono_ns - subject->used_ns <= SL_MON_IN_USE_NS;
}

const struct sl_mon_subject *sl_mon_next(const struct sl_mon *mon,
                                         const struct sl_mon_subject *subject)
{
    size_t i = 0;

    while (subject != NULL && i < mon->count && mon->subjects[i++] != subject)
        ;
    while (i < mon->count && mon->subjects[i] == NULL)
        i++;
    return i < mon->count ? mon->subjects[i] : NULL;
}

/* ---- samples ---- */

static void tell_with(struct sl_mon *mon, const struct sl_mon_subject *subject, unsigned place,
                      enum sl_mon_check check, const struct sl_mon_step *step,
                      const struct sl_mon_evidence *evidence)
{
    struct sl_mon_transition transition = {
        .id = mon->options.next_id++,
        .time = mon->time,
        .subject = subject,
        .check = check,
        .step = *step,
        .evidence = evidence,
        .history = sl_mon_condition_history(&subject->conditions[place], mon->time.mono_ns)};

    memcpy(transition.boot_id, mon->boot_id, sizeof(transition.boot_id));
    mon->options.on_transition(mon->options.arg, &transition);
}

static void tell(struct sl_mon *mon, const struct sl_mon_subject *subject, unsigned place,
                 enum sl_mon_check check, const struct sl_mon_step *step)
{
    tell_with(mon, subject, place, check, step, &subject->evidence[place]);
}

/* Takes room for one event; false: it is only counted. */
static bool take(struct sl_mon_bucket *bucket, uint64_t now_ns)
{
    const uint64_t each_ns = SL_MON_S / SL_MON_EVENTS_PER_S;
    uint64_t back = (now_ns - bucket->since_ns) / each_ns;

    if (back >= bucket->taken) {
        bucket->taken = 0;
        bucket->since_ns = now_ns;
    } else {
        bucket->taken -= (uint32_t)back;
        bucket->since_ns += back * each_ns;
    }
    if (bucket->taken >= SL_MON_EVENTS_AT_ONCE) {
        bucket->withheld++;
        return false;
    }
    bucket->taken++;
    return true;
}

static void tell_event(struct sl_mon *mon, struct sl_mon_subject *subject, unsigned place,
                       enum sl_mon_check check)
{
    struct sl_mon_bucket *bucket = &subject->buckets[place];
    uint8_t state = subject->conditions[place].state;
    const struct sl_mon_step step = {.from = state, .to = state, .input = SL_MON_IN_BAD};
    struct sl_mon_evidence evidence = subject->evidence[place];

    if (!take(bucket, mon->time.mono_ns))
        return;
    if (bucket->withheld != 0)
        snprintf(evidence.text, sizeof(evidence.text), "%.200s (%" PRIu32 " more were not told)",
                 subject->evidence[place].text, bucket->withheld);
    bucket->withheld = 0;
    tell_with(mon, subject, place, check, &step, &evidence);
}

void sl_mon_sample(struct sl_mon *mon, struct sl_mon_subject *subject, enum sl_mon_check check,
                   bool is_bad, const struct sl_mon_evidence *evidence)
{
    int place = place_of(subject, check);
    struct sl_mon_step step;

    sl_assert(place >= 0 && (evidence != NULL || !is_bad));
    const struct sl_mon_sample sample = {.now_ns = mon->time.mono_ns,
                                         .boot_ns = mon->time.boot_ns,
                                         .is_bad = is_bad,
                                         .in_use = sl_mon_in_use(mon, subject)};
    struct sl_mon_condition *condition = &subject->conditions[place];
    uint64_t bads = condition->bads;
    const struct sl_mon_input_record input = {.what = SL_MON_PUT_SAMPLE,
                                              .kind = subject->kind,
                                              .name = subject->name,
                                              .check = check,
                                              .is_bad = is_bad,
                                              .evidence = is_bad ? evidence : NULL};

    put(mon, &input);
    if (is_bad)
        subject->evidence[place] = *evidence;
    if (sl_mon_condition_sample(condition, &sl_mon_checks[check].policy, &sample, &step))
        tell(mon, subject, (unsigned)place, check, &step);
    else if (condition->bads != bads && sl_mon_checks[check].policy.quiet)
        tell_event(mon, subject, (unsigned)place, check);
}

void sl_mon_calm(struct sl_mon *mon, enum sl_mon_check check)
{
    const struct sl_mon_input_record input = {.what = SL_MON_PUT_CALM, .check = check};

    put(mon, &input);
    for (size_t i = 0; i < mon->count; i++) {
        struct sl_mon_subject *subject = mon->subjects[i];
        int place = subject == NULL ? -1 : place_of(subject, check);
        struct sl_mon_step step;

        if (place >= 0 &&
            sl_mon_condition_tick(&subject->conditions[place], &sl_mon_checks[check].policy,
                                  mon->time.mono_ns, &step))
            tell(mon, subject, (unsigned)place, check, &step);
    }
}

/* ---- beginning anew ---- */

static bool reset(struct sl_mon *mon, struct sl_mon_subject *subject, enum sl_mon_input input)
{
    enum sl_mon_check first;
    unsigned count = sl_mon_checks_of(subject->kind, &first);
    bool changed = false;

    for (unsigned i = 0; i < count; i++) {
        struct sl_mon_step step;

        if (!sl_mon_condition_reset(&subject->conditions[i], input, mon->time.mono_ns, &step))
            continue;
        changed = true;
        tell(mon, subject, i, first + i, &step);
    }
    return changed;
}

void sl_mon_set_boot(struct sl_mon *mon, const char *boot_id)
{
    bool is_other = mon->boot_id[0] != '\0' && strcmp(mon->boot_id, boot_id) != 0;

    const struct sl_mon_input_record input = {.what = SL_MON_PUT_BOOT, .boot_id = boot_id};

    put(mon, &input);
    snprintf(mon->boot_id, sizeof(mon->boot_id), "%s", boot_id);
    for (size_t i = 0; i < mon->count && is_other; i++)
        if (mon->subjects[i] != NULL)
            reset(mon, mon->subjects[i], SL_MON_IN_BOOT);
}

const char *sl_mon_boot(const struct sl_mon *mon)
{
    return mon->boot_id;
}

bool sl_mon_clear(struct sl_mon *mon, struct sl_mon_subject *subject)
{
    subject->clears++;
    put_subject(mon, SL_MON_PUT_CLEAR, subject);
    return reset(mon, subject, SL_MON_IN_CLEAR);
}

void sl_mon_forget(struct sl_mon *mon, struct sl_mon_subject *subject)
{
    put_subject(mon, SL_MON_PUT_FORGET, subject);
    reset(mon, subject, SL_MON_IN_GONE);
    if (mon->options.on_forget != NULL)
        mon->options.on_forget(mon->options.arg, subject);
    for (size_t i = 0; i < mon->count; i++)
        if (mon->subjects[i] == subject) {
            mon->subjects[i] = NULL;
            subject_free(subject);
            return;
        }
}

void sl_mon_restore(struct sl_mon *mon, struct sl_mon_subject *subject, enum sl_mon_check check,
                    const struct sl_mon_condition *condition)
{
    int place = place_of(subject, check);
    const struct sl_mon_input_record input = {.what = SL_MON_PUT_RESTORE,
                                              .kind = subject->kind,
                                              .name = subject->name,
                                              .check = check,
                                              .condition = condition};

    put(mon, &input);
    sl_assert(place >= 0 && condition->state < SL_MON_STATES);
    subject->conditions[place] = *condition;
}
