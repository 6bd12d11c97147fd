/* SPDX-License-Identifier: Apache-2.0 */
/* Puts together who we are, where we meet and the meeting itself. */
#include "launch/launch.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "launch/kept.h"
#include "launch/rendezvous.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIND_MS 2000 /* a rank 0 of the job before may still be closing its port */
#define BIND_STEP_MS 50

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
        err = sl_listen_root(root, &listeners);
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

int sl_launch(const struct sl_config *config, struct sl_identity *identity,
              struct sl_exchange **out)
{
    struct sl_identity id;
    int err = sl_identify(config, from_environment, NULL, &id);

    if (err != 0)
        return err;
    struct sl_party party = {id.rank, id.size, id.job, id.secret,
                             (uint64_t)config->connect_timeout_ms};
    if (party.size == 1)
        err = sl_rendezvous_alone(out);
    else
        err = check_party(&party) ?: meet_at_root(&party, id.root, out);
    if (err == 0 && identity != NULL)
        *identity = id;
    return err;
}
