/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a communicator: two all_gathers on it, and nothing else. */
#include "lib/args.h"

#include "collectives/child.h"
#include "collectives/code.h"
#include "collectives/family.h"

#include <stdlib.h>

/* What a rank says first, as it lies in memory. */
struct word {
    int32_t color, key;
    uint32_t channel, area; /* of its place */
};

/* Of one call. */
struct split {
    struct sluice_comm *parent;
    int color, key;
    struct sl_place mine;
    struct word *words;      /* [size of the parent] */
    struct sl_place *places; /* [size]: of the child, by rank there */
    int32_t *codes;          /* [size]: what each rank says second: 0, or a negative errno */
    int *members;            /* [size]: of the child, by their rank there */
    int count;               /* of them */
};

static int gather(const struct split *s, const void *in, void *out, size_t len)
{
    struct sl_call call;
    int err = sl_args_all_gather(s->parent, in, out, len, SLUICE_U8, &call);

    return err != 0 ? err : sl_call_inside(s->parent, &call, in, out);
}

static int by_key(const void *a, const void *b, void *arg)
{
    const struct word *words = arg;
    int x = *(const int *)a, y = *(const int *)b;

    if (words[x].key != words[y].key)
        return words[x].key < words[y].key ? -1 : 1;
    return (x > y) - (x < y);
}

/* Members of this rank's color, ordered by key, then rank. */
static void sort_members(struct split *s)
{
    s->count = 0;
    for (int r = 0; r < (int)s->parent->size; r++)
        if (s->words[r].color == s->color)
            s->members[s->count++] = r;
    qsort_r(s->members, (size_t)s->count, sizeof(*s->members), by_key, s->words);
}

static int make(struct split *s, struct sluice_comm **child)
{
    struct sl_child_params params = {.like = s->parent,
                                     .config = &s->parent->config,
                                     .id = s->parent->id,
                                     .size = (uint32_t)s->count,
                                     .places = s->places,
                                     .mine = &s->mine};

    for (int i = 0; i < s->count; i++) {
        uint32_t r = (uint32_t)s->members[i];

        params.rank = r == s->parent->rank ? (uint32_t)i : params.rank;
        s->places[i] =
            (struct sl_place){sl_family_rank(s->parent, r), s->words[r].channel, s->words[r].area};
    }
    return sl_child_make(&params, child);
}

/* Offers, and makes the child as far as this rank can alone. */
static int prepare(struct split *s, struct sluice_comm **child)
{
    struct word word = {s->color, s->key, 0, SL_NO_AREA};
    int err;

    s->mine.area = SL_NO_AREA;
    if (s->color >= 0) {
        sl_place_offer(s->parent->family, &s->mine);
        word.channel = s->mine.channel;
        word.area = s->mine.area;
    }
    err = gather(s, &word, s->words, sizeof(word));
    if (err != 0 || s->color < 0)
        return err;
    sort_members(s);
    return make(s, child);
}

/* The first rank of this color that could not; -1: all could. */
static int find_failed(const struct split *s)
{
    for (int i = 0; s->color >= 0 && i < s->count; i++)
        if (s->codes[s->members[i]] != 0)
            return s->members[i];
    return -1;
}

static bool must_repeat(const struct split *s)
{
    for (uint32_t r = 0; r < s->parent->size; r++)
        if (s->codes[r] == -EAGAIN)
            return true;
    return false;
}

/* One try. -EAGAIN: all ranks try again. */
static int try_once(struct split *s, struct sluice_comm **out)
{
    struct sluice_comm *child = NULL;
    struct sl_error own;
    int32_t code = prepare(s, &child);
    int failed, err;

    sl_error_take(code, &own);
    err = gather(s, &code, s->codes, sizeof(code));
    sl_place_withdraw(s->parent->family, &s->mine);
    failed = err == 0 ? find_failed(s) : -1;
    if (err == 0 && must_repeat(s))
        err = -EAGAIN;
    else if (code != 0)
        err = sl_fail_error(&own);
    else if (failed >= 0)
        err = sl_fail(s->codes[failed],
                      "rank %d could not make its communicator of the split: %s; "
                      "see its output",
                      failed, sluice_strerror(s->codes[failed]));
    if (err != 0) {
        sl_child_drop(child);
        return err;
    }
    if (child != NULL) {
        sl_comm_set_coding(child, s->parent->coding);
        sl_child_start(child);
    }
    *out = child;
    return 0;
}

static int split(struct split *s, struct sluice_comm **out)
{
    size_t size = s->parent->size;
    int err;

    s->words = calloc(size, sizeof(*s->words));
    s->places = calloc(size, sizeof(*s->places));
    s->codes = calloc(size, sizeof(*s->codes));
    s->members = calloc(size, sizeof(*s->members));
    if (s->words == NULL || s->places == NULL || s->codes == NULL || s->members == NULL)
        return sl_fail(-ENOMEM, "no memory to split %zu ranks", size);
    do
        err = try_once(s, out);
    while (err == -EAGAIN);
    return err;
}

int sluice_comm_split(struct sluice_comm *comm, int color, int key, struct sluice_comm **out)
{
    struct split s = {.parent = comm, .color = color, .key = key};
    int err;

    if (out != NULL)
        *out = NULL;
    if (comm == NULL || out == NULL)
        return sl_fail(-EINVAL, "the communicator or the place for the new one is missing");
    if (sl_check_process(comm) != 0)
        return -EINVAL;
    sl_enter(comm);
    err = split(&s, out);
    sl_leave(comm);
    free(s.words);
    free(s.places);
    free(s.codes);
    free(s.members);
    return err;
}
