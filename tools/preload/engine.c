/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator beside the application's own: made on all ranks or on none. */
#include "tools/preload/engine.h"

#include "tools/preload/config.h"
#include "core/clock.h"
#include "core/exchange.h"
#include "lib/api.h"
#include "lib/compress_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)
#define PRELOAD_MAGIC UINT32_C(0x534c5031)

/*
 * Every round starts with these words of each rank. A rank that gave up says so in the round that
 * the others come to next, whichever that is, and nobody goes on: so no rank waits for one that has
 * left.
 */
struct word {
    uint32_t magic;
    int32_t failed; /* a negative errno */
    uint64_t len;   /* of the round; 0: the last one, all went well so far */
    uint64_t facts;
};

struct round_exchange {
    struct sl_exchange base;
    const struct sl_preload_peers *peers;
    struct word *words; /* [size] */
    bool over;          /* all know that it failed */
};

static int judge_words(struct round_exchange *x, size_t len)
{
    for (int r = 0; r < x->base.size; r++) {
        const struct word *word = &x->words[r];

        if (word->magic != PRELOAD_MAGIC || word->facts != x->peers->facts)
            return sl_fail(-EPROTO,
                           "rank %d takes calls by other rules: give all ranks the same Sluice and "
                           "the same SLUICE_* variables",
                           r);
        if (word->failed != 0)
            return sl_fail(word->failed, "rank %d could not make its part: %s", r,
                           sluice_strerror(word->failed));
    }
    for (int r = 0; r < x->base.size; r++)
        if (x->words[r].len != len)
            return sl_fail(-EPROTO, "rank %d is at another step of the start", r);
    return 0;
}

static int say(struct round_exchange *x, int failed, size_t len)
{
    struct word mine = {PRELOAD_MAGIC, failed, len, x->peers->facts};
    int err = x->peers->allgather(x->peers->arg, &mine, sizeof(mine), x->words);

    if (err == 0)
        err = judge_words(x, len);
    if (err != 0)
        x->over = true;
    return err;
}

static int round_allgather(struct sl_exchange *base, const void *in, size_t len, void *out)
{
    struct round_exchange *x = (struct round_exchange *)base;
    int err = say(x, 0, len);

    if (err == 0)
        err = x->peers->allgather(x->peers->arg, in, len, out);
    if (err != 0)
        x->over = true;
    return err;
}

int sl_preload_comm_create(const struct sl_preload_peers *peers, struct sluice_comm **out)
{
    struct round_exchange x = {
        .base = {.rank = peers->rank, .size = peers->size, .allgather = round_allgather},
        .peers = peers};
    const char *given = getenv("SLUICE_TIMEOUT_MS");
    struct sluice_config config;
    struct sluice_comm *comm = NULL;
    struct sl_error error;

    sl_assert(sl_config_register(&sl_preload_section) == 0);
    sluice_config_init(&config);
    if (given == NULL || given[0] == '\0')
        config.timeout_ms = peers->timeout_ms > 0 ? peers->timeout_ms : DAY_MS;
    /* A rank without memory for this leaves the others waiting in the original library: so few
     * bytes come from the stack of small jobs, and large ones have other worries. */
    struct word some[64];

    x.words = peers->size <= 64 ? some : calloc((size_t)peers->size, sizeof(*x.words));
    sl_assert(x.words != NULL);
    int err = peers->refuse;

    if (err == 0)
        err = sl_comm_create_over(&x.base, &config, peers->poke, peers->arg, &comm);

    sl_error_take(err, &error);
    if (!x.over) {
        int verdict = say(&x, err, 0);

        /* My own reason says more than that I failed. */
        if (err == 0 && verdict != 0) {
            err = verdict;
            sl_error_take(err, &error);
        }
    }
    if (x.words != some)
        free(x.words);
    if (err != 0) {
        sluice_comm_destroy(comm);
        return sl_fail_error(&error);
    }
    if (comm->coding != NULL)
        sl_compression_tell_at_exit(peers->rank);
    *out = comm;
    return 0;
}

uint64_t sl_preload_now(void)
{
    return sl_now(&sl_clock_monotonic);
}
