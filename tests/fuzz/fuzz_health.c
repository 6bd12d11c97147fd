/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages of peers. An input is a row of records: who sends (a byte), how long (a byte),
 * what; with nothing to say, the connection to it may be lost; after each the clock moves on.
 * Whatever they say, the communicator's error, if any, is a negative code with a sentence that
 * ends, that blames a rank there is and that steers no terminal; and one that has begun to come is
 * there soon. */
#include "collectives/comm.h"
#include "collectives/family.h"
#include "collectives/health.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>

#define RANKS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t time_ns;

static uint64_t now(const struct sl_clock *clock)
{
    (void)clock;
    return time_ns;
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static void check_text(const char *text, size_t cap)
{
    sl_assert(memchr(text, '\0', cap) != NULL);
    for (const char *c = text; *c != '\0'; c++)
        sl_assert((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void check(const struct sluice_comm *comm)
{
    const struct sl_health *health = &comm->health;

    sl_assert(health->told_len == 0 ||
              (health->told < health->told_len && health->told_len < sizeof(health->pending) &&
               time_ns - health->pending_ns < SL_NS_PER_S / 4));
    if (comm->health.error.code == 0)
        return;
    sl_assert(comm->health.error.code < 0 && comm->health.error.code > -4096);
    sl_assert(comm->health.error.culprit >= -1 && comm->health.error.culprit < RANKS);
    check_text(comm->health.error.area, sizeof(comm->health.error.area));
    check_text(comm->health.error.text, sizeof(comm->health.error.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sl_clock clock = {.now_ns = now};
    static struct sl_worker worker = {.clock = &clock};
    static struct sluice_comm comm;
    struct sl_peers peers;
    bool sets[2 * RANKS];

    sl_log_set_sink(no_log, NULL);
    sl_assert(sl_peers_init(&peers, RANKS) == 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        sl_assert(sl_peers_make(&peers, rank) != NULL);
    memset(&comm, 0, sizeof(comm));
    comm = (struct sluice_comm){
        .rank = 1, .size = RANKS, .peers = peers, .health.rank_sets = sets, .calls.seq = 3};
    comm.worker = &worker;
    comm.config.timeout_ms = 1000;
    sl_list_init(&comm.calls.active);
    sl_assert(sl_family_make(&comm) == 0);
    for (uint32_t seq = 1; seq <= comm.calls.seq; seq++)
        comm.calls.history[seq] =
            (struct sl_signature){.seq = seq,
                                  .fingerprint = 7 * seq,
                                  .run = comm.calls.run = sl_run_on(comm.calls.run, 7 * seq),
                                  .count = seq};
    time_ns = SL_NS_PER_S;
    while (size >= 2) {
        uint32_t from = data[0] % RANKS;
        struct sl_ep ep = {.owner = sl_link_make(comm.family, from), .peer = (int)from};
        size_t len = data[1] < size - 2 ? data[1] : size - 2;
        uint8_t *msg =
            malloc(len + (len == 0)); /* of its size, so that a sanitizer sees overruns */

        sl_assert(msg != NULL && ep.owner != NULL);
        memcpy(msg, data + 2, len);
        if (data[0] < 0xf0 && len >= sizeof(struct sl_ctrl_head)) /* mostly of this communicator */
            memcpy(msg + offsetof(struct sl_ctrl_head, channel), &comm.channel,
                   sizeof(comm.channel));
        if (data[0] >= 0xf8 && len == 0)
            sl_health_down(&comm, from, -ECONNRESET, "it is lost");
        else
            sl_links_ctrl(NULL, &ep, msg, len);
        free(msg);
        check(&comm);
        time_ns += 30 * SL_NS_PER_MS;
        sl_health_tick(&comm, time_ns);
        check(&comm);
        data += 2 + len;
        size -= 2 + len;
    }
    time_ns += SL_NS_PER_S;
    sl_health_tick(&comm, time_ns);
    check(&comm);
    sl_assert(comm.health.told_len == 0);
    free(comm.health.relays);
    sl_family_leave(&comm);
    sl_peers_fini(&comm.peers);
    return 0;
}
