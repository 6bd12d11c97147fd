/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank learns who it is and meets the others: every way ends in an exchange. */
#ifndef SL_LAUNCH_LAUNCH_H
#define SL_LAUNCH_LAUNCH_H

#include "core/config.h"
#include "core/exchange.h"

#include <sluice/comm.h>

/* Who this process is, according to the configuration and the launcher's variables. */
struct sl_identity {
    int rank;                  /* -1: only the launcher's server knows (PMIx) */
    int size;                  /* -1: likewise */
    int local_rank;            /* among the ranks of this host; -1: the launcher does not say */
    int local_size;            /* -1: likewise */
    enum sl_launcher launcher; /* that says so; never SL_LAUNCHER_AUTO */
    char root[SL_TEXT_MAX];    /* host:port, or host:port+N for N more ports to try; "": published
                               * through the launcher's own store */
    char job[SL_TEXT_MAX];     /* keeps jobs apart that meet at one port */
    char secret[SL_TEXT_MAX];  /* "": none, or made by rank 0 and published through the store */
};

/* An environment: value of name, or NULL. */
typedef const char *sl_getter(void *arg, const char *name);

/* Works out who this is; pure, so that tests hand in made-up environments. config wins over every
 * launcher; without any, rank 0 of 1. -EINVAL names the contradiction, or what is missing. */
int sl_identify(const struct sl_config *config, sl_getter *get, void *arg, struct sl_identity *out);

/* Identifies this process by config and environment and meets the other ranks, until
 * config->connect_timeout_ms has passed. One rank alone needs no socket. *out is owned by the
 * caller, who ends it by close(). -ETIMEDOUT names the ranks that did not come; -EPROTO: another
 * version, job, size or secret; -ECONNRESET: a rank died meanwhile.
 * identity may be NULL; it gets rank, size and what is known of the host. */
int sl_launch(const struct sl_config *config, struct sl_identity *identity,
              struct sl_exchange **out);

/* Opens a meeting place in this process and describes it in *id. It serves one communicator, in
 * which this process is rank 0. config: interface and port range. */
int sl_unique_id_create(const struct sl_config *config, struct sluice_unique_id *id);

/* As sl_launch, at the meeting place of id. */
int sl_launch_id(const struct sluice_unique_id *id, int rank, int size,
                 const struct sl_config *config, struct sl_exchange **out);

/* Starts count ranks of this program on this host by fork. Call it before any thread is started.
 *
 * Returns 1 in each child, whose environment then has SLUICE_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE,
 * _ROOT, _JOB and _SECRET: read the configuration after that. Returns 0 in the parent once all have
 * ended, with the worst exit status (128 + signal for a killed rank) in *status. When a rank fails,
 * the log says which and how, and the others get grace_ms to report before they are ended too.
 * Signals to the parent are passed on. Negative errno: nothing was started. */
int sl_local_start(int count, uint64_t grace_ms, int *status);

#endif
