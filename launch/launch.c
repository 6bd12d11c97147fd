/* SPDX-License-Identifier: Apache-2.0 */
/* Puts together who we are, where we meet and the meeting itself. */
#include "launch/launch.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/kept.h"
#include "launch/pmi.h"
#include "launch/pmix.h"
#include "launch/rendezvous.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIND_MS 2000 /* a rank 0 of the job before may still be closing its port */
#define BIND_STEP_MS 50
#define SECRET_LEAST 16 /* characters */

static const char *from_environment(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

static int check_party(const struct sl_party *party)
{
    if (party->size < 1 || party->rank < 0 || party->rank >= party->size)
        return sl_fail(-EINVAL, "there is no rank %d of %d", party->rank, party->size);
    return 0;
}

/* Rank 0 at a place that is known to all: takes the socket it inherited or opens one. */
static int host_at_root(const struct sl_party *party, const struct sl_root *root,
                        struct sl_exchange **out)
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + BIND_MS * SL_NS_PER_MS;
    struct sl_listeners listeners;
    int err = 0;

    while (!sl_kept_take(root->port, &listeners)) {
        err = sl_listen_root(root, *party->secret != '\0', &listeners);
        if (err != -EADDRINUSE || sl_now(&sl_clock_monotonic) >= until_ns)
            break;
        poll(NULL, 0, BIND_STEP_MS);
    }
    return err != 0 ? err : sl_rendezvous_host(party, &listeners, out);
}

static int meet_at_root(const struct sl_party *party, const char *text, struct sl_exchange **out)
{
    struct sl_root root;
    int err = sl_root_parse(text, &root);

    if (err != 0)
        return err;
    if (party->rank == 0)
        return host_at_root(party, &root, out);
    return sl_rendezvous_join(party, &(struct sl_places){.root = &root}, out);
}

/* Rank 0 opens the place that card describes and that publishing still has to carry. */
static int open_place(const struct sl_config *config, bool loopback, struct sl_listeners *listeners,
                      struct sl_card *card)
{
    int err = sl_card_make(config, loopback, card);

    return err ?: sl_listen_any(config->port_range, card, listeners);
}

int sl_unique_id_create(const struct sl_config *config, struct sluice_unique_id *id)
{
    struct sl_listeners listeners;
    struct sl_card card;
    int err = open_place(config, false, &listeners, &card);

    if (err != 0)
        return err;
    err = sl_kept_put(&listeners);
    if (err != 0) {
        sl_listeners_close(&listeners);
        return err;
    }
    sl_card_pack(&card, id);
    return 0;
}

/* Joins at the place of card, or hosts it at listeners. */
static int meet_at_card(const struct sl_config *config, const struct sl_party *party,
                        struct sl_card *card, const struct sl_listeners *listeners,
                        struct sl_exchange **out)
{
    struct sl_party proven = *party;

    proven.secret = card->secret;
    if (party->rank == 0)
        return sl_rendezvous_host(&proven, listeners, out);
    int err = sl_card_localize(config, card);
    return err ?: sl_rendezvous_join(&proven, &(struct sl_places){.card = card}, out);
}

int sl_launch_id(const struct sluice_unique_id *id, int rank, int size,
                 const struct sl_config *config, struct sl_exchange **out)
{
    struct sl_party party = {rank, size, "", "", (uint64_t)config->connect_timeout_ms, config};
    struct sl_listeners listeners = {.count = 0};
    struct sl_card card;
    int err = check_party(&party) ?: sl_card_unpack(id, &card);

    if (err != 0)
        return err;
    if (rank == 0 && !sl_kept_take(card.port, &listeners))
        return sl_fail(-EINVAL, "this process has not made this unique id, or has used it before; "
                                "rank 0 makes a new one for each communicator");
    if (size > 1)
        return meet_at_card(config, &party, &card, &listeners, out);
    sl_listeners_close(&listeners);
    return sl_rendezvous_alone(out);
}

typedef int sl_share(const char *text, char *out, size_t cap, uint64_t timeout_ms);

static int share_by_pmi(const char *text, char *out, size_t cap, uint64_t timeout_ms)
{
    const char *fd = getenv("PMI_FD");

    return sl_pmi_share(fd != NULL ? atoi(fd) : -1, text, out, cap, timeout_ms);
}

/* Rank 0 opens a place and a secret, which the launcher's own store carries to the others. */
static int meet_by_store(const struct sl_config *config, const struct sl_identity *id,
                         const struct sl_party *party, sl_share *share, struct sl_exchange **out)
{
    struct sl_listeners listeners = {.count = 0};
    struct sluice_unique_id packed;
    struct sl_card card;
    char text[2 * SLUICE_UNIQUE_ID_BYTES + 1];
    int err = 0;

    if (party->rank == 0) {
        err = open_place(config, id->local_size == id->size, &listeners, &card);
        if (err != 0)
            return err;
        sl_card_pack(&card, &packed);
        sl_hex(packed.bytes, sizeof(packed.bytes), text);
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): where no root is given there is one */
    err = share(party->rank == 0 ? text : NULL, text, sizeof(text), party->timeout_ms);
    if (err == 0 && sl_unhex(text, packed.bytes, sizeof(packed.bytes)) != 0)
        err = sl_fail(-EPROTO,
                      "the launcher's store gave something else than rank 0's meeting place");
    err = err ?: sl_card_unpack(&packed, &card);
    if (err != 0) {
        sl_listeners_close(&listeners);
        return err;
    }
    return meet_at_card(config, party, &card, &listeners, out);
}

/* Without PMIx's library, the variables of Open MPI or Slurm may still be enough. */
static int without_pmix(const struct sl_config *config, struct sl_identity *id)
{
    static const enum sl_launcher others[] = {SL_LAUNCHER_OPENMPI, SL_LAUNCHER_SLURM};
    struct sl_config forced = *config;
    char why[SL_ERROR_TEXT_MAX];

    snprintf(why, sizeof(why), "%s", sluice_last_error());
    sl_info("launch", "%s; trying without", why);
    for (size_t i = 0; i < SL_ARRAY_LEN(others); i++) {
        forced.launcher = others[i];
        if (sl_identify(&forced, from_environment, NULL, id) == 0)
            return 0;
    }
    return sl_fail(-ENODEV, "%s; install it, or set SLUICE_RANK, SLUICE_SIZE and SLUICE_ROOT", why);
}

/* Where ranks meet at a place that anybody may know. */
static int check_secret(const struct sl_config *config, const struct sl_identity *id)
{
    size_t len = strlen(id->secret);

    if (len == 0 && config->require_secret == SL_ON)
        return sl_fail(-EINVAL,
                       "SLUICE_REQUIRE_SECRET is on, but this job has no secret: set the same "
                       "SLUICE_SECRET on all ranks (openssl rand -hex 32)");
    if (len > 0 && len < SECRET_LEAST && id->rank == 0)
        sl_warn("launch",
                "the secret has %zu characters: who records a meeting can find it by trial; take "
                "%d or more that nobody can guess (openssl rand -hex 32)",
                len, SECRET_LEAST);
    return 0;
}

static int meet(const struct sl_config *config, const struct sl_identity *id, sl_share *share,
                struct sl_exchange **out)
{
    struct sl_party party = {
        id->rank, id->size, id->job, id->secret, (uint64_t)config->connect_timeout_ms, config};
    int err = check_party(&party);

    if (err != 0)
        return err;
    if (party.size == 1)
        return sl_rendezvous_alone(out);
    sl_debug("launch", "rank %d of %d by %s, meeting at %s", id->rank, id->size,
             sl_launcher_name(id->launcher),
             *id->root != '\0' ? id->root : "a place that rank 0 publishes");
    if (*id->root != '\0')
        return check_secret(config, id) ?: meet_at_root(&party, id->root, out);
    return meet_by_store(config, id, &party, share, out);
}

static int meet_by_pmix(const struct sl_config *config, struct sl_identity *id,
                        struct sl_exchange **out)
{
    struct sl_pmix_self self;
    int err = sl_pmix_open(&self);

    if (err == -ENOTSUP)
        return without_pmix(config, id) ?: meet(config, id, NULL, out);
    if (err != 0)
        return err;
    id->rank = self.rank;
    id->size = self.size;
    id->local_rank = config->local_rank >= 0 ? (int)config->local_rank : self.local_rank;
    id->local_size = self.local_size;
    err = meet(config, id, sl_pmix_share, out);
    sl_pmix_close();
    return err;
}

int sl_launch(const struct sl_config *config, struct sl_identity *identity,
              struct sl_exchange **out)
{
    struct sl_identity id;
    int err = sl_identify(config, from_environment, NULL, &id);

    if (err != 0)
        return err;
    if (id.launcher == SL_LAUNCHER_PMIX && (*id.root == '\0' || id.size < 0))
        err = meet_by_pmix(config, &id, out);
    else
        err = meet(config, &id, share_by_pmi, out);
    if (err == 0 && identity != NULL)
        *identity = id;
    return err;
}
