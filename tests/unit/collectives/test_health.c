/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a rank blames, and when: by what peers said lately, and only for what is needed of them. */
#include "world.h"

#include "collectives/dispute.h"
#include "collectives/family.h"
#include "collectives/health.h"
#include "collectives/window.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* For so long this rank lives on: it moves its communicator, or is as if stopped. */
static void rest(struct sluice_comm *comm, uint64_t ms, bool moves)
{
    uint64_t end = sl_now(comm->worker->clock) + ms * SL_NS_PER_MS;

    while (sl_now(comm->worker->clock) < end && (!moves || sluice_comm_async_error(comm) == 0))
        comm->worker->idle(comm->worker);
}

/* As the progress thread does, longer than the timeout. Then rank 1 comes a little later than rank
 * 0: not too late. */
static void wait_after_a_rest(struct sluice_comm **comm, int rank)
{
    uint64_t end = sl_now((*comm)->worker->clock) + 1000 * SL_NS_PER_MS;
    int32_t word = rank;

    while (sl_now((*comm)->worker->clock) < end) {
        sl_comm_idle(*comm, sl_comm_progress(*comm), false);
        (*comm)->worker->idle((*comm)->worker);
    }
    if (rank == 1) {
        rest(*comm, 300, false);
        EXPECT(sluice_send(*comm, &word, 1, SLUICE_I32, 0, NULL) == 0);
    } else {
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL) == 0);
        EXPECT(word == 1);
    }
}

static void time_without_operations_is_not_time_without_progress(void **state)
{
    RUN(2, "", wait_after_a_rest);
}

/* A rank that computes for long before its first call: that is not counted against its peer. */
static void first_call_late(struct sluice_comm **comm, int rank)
{
    int32_t word = 0;

    rest(*comm, 10000, false);
    uint64_t start = sl_now((*comm)->worker->clock);

    if (rank == 0) {
        EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL), -ETIMEDOUT, "rank 1");
        EXPECT(sl_now((*comm)->worker->clock) - start >= 400 * SL_NS_PER_MS);
    } else {
        rest(*comm, 600, false);
    }
}

static void an_operation_has_the_whole_timeout(void **state)
{
    RUN(2, "", first_call_late);
}

/* Both compute for longer than the timeout while a receive is under way, rank 1 for a little longer
 * still. */
static void compute_meanwhile(struct sluice_comm **comm, int rank)
{
    int32_t word = 1;
    struct sluice_req *req;

    if (rank == 0) {
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, &req) == 0);
        for (int i = 0; i < 20; i++) {
            EXPECT(sluice_test(req) == 0);
            (*comm)->worker->idle((*comm)->worker);
        }
    }
    rest(*comm, rank == 0 ? 1000 : 1100, false);
    if (rank == 0) {
        EXPECT(sluice_wait(req) == 0);
        sluice_req_free(req);
    } else {
        EXPECT(sluice_send(*comm, &word, 1, SLUICE_I32, 0, NULL) == 0);
    }
}

static void time_away_is_not_time_without_progress(void **state)
{
    RUN(2, "", compute_meanwhile);
}

/* Rank 1 said that it waits for rank 2, and then says nothing more: what it said is too old to lead
 * to rank 2. */
static void stale_chain(struct sluice_comm **comm, int rank)
{
    int32_t word = 0;
    struct sluice_req *req;

    if (rank == 1) {
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 2, &req) == 0);
        uint64_t end = sl_now((*comm)->worker->clock) + 100 * SL_NS_PER_MS;

        while (sl_now((*comm)->worker->clock) < end && sluice_test(req) == 0)
            (*comm)->worker->idle((*comm)->worker);
        rest(*comm, 1000, false);
        sluice_req_free(req);
    } else if (rank == 2) {
        rest(*comm, 1000, true);
    } else {
        EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL), -ETIMEDOUT,
                     "rank 1 made no progress");
    }
}

static void what_a_silent_rank_said_long_ago_leads_to_nobody(void **state)
{
    RUN(3, "", stale_chain);
}

/* Rank 0 waits for rank 1, that one for rank 2, that one for rank 3, which is as if stopped. Rank 0
 * began first, so it speaks first. */
static void chain(struct sluice_comm **comm, int rank)
{
    int32_t word = 0;

    if (rank == 3) {
        rest(*comm, 1000, false);
        return;
    }
    if (rank != 0)
        rest(*comm, 50, true);
    EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, rank + 1, NULL), -ETIMEDOUT,
                 "rank 3 gave no sign of life");
}

static void a_chain_of_waits_leads_to_its_end(void **state)
{
    RUN(4, "", chain);
}

/* Rank 0 waits for rank 1, and hears of rank 6, for which that one waits, by its word alone. */
static void chain_beyond(struct sluice_comm **comm, int rank)
{
    int32_t word = 0;

    if (rank > 1) {
        rest(*comm, 1000, rank != 6);
        return;
    }
    if (rank == 0)
        EXPECT(sl_comm_peer(*comm, 6)->ep == NULL);
    else
        rest(*comm, 50, true);
    EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, rank == 0 ? 1 : 6, NULL), -ETIMEDOUT,
                 "rank 6 gave no sign of life");
}

static void a_chain_of_waits_leads_beyond_those_that_are_heard(void **state)
{
    world_maps = false;
    const char *why = world_run(8, "", chain_beyond);

    world_maps = true;
    if (why != NULL)
        fail_msg("%s", why);
}

/* A status that is to be passed on, as it travels. */
struct told {
    struct sl_ctrl_head head;
    int32_t waits_for;
    uint32_t step, origin, number;
    int32_t culprit;
    uint32_t culprit_seq, culprit_age, reserved;
    struct sl_told told;
};

/* Rank 1 repeats what ranks 1 and 2 say more often than rank 0 passes it on. */
static void hear_often(struct sluice_comm **comm, int rank)
{
    struct told msg = {.head = {.type = SL_CTRL_STATUS, .flags = 1 << 1}, .waits_for = -1};

    if (rank != 0)
        return;
    msg.head.channel = (*comm)->channel;
    for (msg.number = 1; msg.number <= 1000; msg.number++) {
        msg.origin = 1 + msg.number % 2;
        msg.culprit = -1;
        sl_health_ctrl(*comm, 1, &msg, sizeof(msg));
    }
    EXPECT(sl_comm_peer(*comm, 1)->status.number == 1000);
    EXPECT(sl_comm_peer(*comm, 2)->status.number == 999);
    EXPECT((*comm)->health.relay_count == 2);
}

static void of_each_rank_one_status_is_kept_to_be_passed_on(void **state)
{
    RUN(3, "", hear_often);
}

/* Rank 1 says what it called under the disputed number, and then what it called next. */
static void say_more(struct sluice_comm **comm, int rank)
{
    struct told msg = {.head = {.type = SL_CTRL_STATUS}, .waits_for = -1, .culprit = -1};

    if (rank != 0)
        return;
    sl_dispute_open(*comm, 5);
    msg.head.channel = (*comm)->channel;
    msg.origin = 1;
    for (uint32_t seq = 5; seq <= 6; seq++) {
        msg.number = seq;
        msg.told.call = (struct sl_signature){.seq = seq, .fingerprint = seq};
        sl_health_ctrl(*comm, 1, &msg, sizeof(msg));
    }
    EXPECT(sl_comm_peer(*comm, 1)->status.number == 6);
    EXPECT(sl_comm_peer(*comm, 1)->status.call.seq == 5);
    (*comm)->health.mismatch_ns = 0; /* it was none */
}

static void what_was_called_under_a_disputed_number_stays(void **state)
{
    RUN(2, "", say_more);
}

/* Rank 2 speaks to rank 0 of a communicator that it is no member of. */
static void speak_of_another_split(struct sluice_comm **comm, int rank)
{
    struct told msg = {.head = {.type = SL_CTRL_BYE}, .waits_for = -1, .culprit = -1};
    struct sluice_comm *child = NULL;

    EXPECT(sluice_comm_split(*comm, rank == 2, 0, &child) == 0);
    if (rank == 0) {
        struct sl_link *link = sl_link_find((*comm)->family, 2);
        bool uses = false;

        msg.head.channel = child->channel;
        sl_links_ctrl(NULL, link->ep, &msg, sizeof(msg));
        sl_list_foreach(&link->users, node)
        {
            uses |= sl_container_of(node, struct sl_peer, of_link)->comm == child;
        }
        EXPECT(!uses);
    }
    sluice_comm_destroy(child);
}

static void who_is_no_member_is_not_heard(void **state)
{
    RUN(3, "", speak_of_another_split);
}

/* Rank 2 has left in good order, and nobody needs it: those who wait for each other are let be. */
static void leaver(struct sluice_comm **comm, int rank)
{
    int32_t word = rank;

    if (rank == 2) {
        sluice_comm_destroy(*comm);
        *comm = NULL;
    } else if (rank == 1) {
        rest(*comm, 100, true);
        EXPECT(sluice_send(*comm, &word, 1, SLUICE_I32, 0, NULL) == 0);
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 0, NULL) == 0);
    } else {
        EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL) == 0);
        EXPECT(word == 1);
        rest(*comm, 100, true);
        EXPECT(sluice_send(*comm, &word, 1, SLUICE_I32, 1, NULL) == 0);
    }
}

static void a_rank_that_left_is_missed_only_by_who_needs_it(void **state)
{
    RUN(3, "", leaver);
}

/* Both ranks send, neither receives, and nothing is called any more: whoever leaves last hears of
 * it. */
static char *heard;

static void note_line(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area;
    if (heard == NULL && strstr(line, "disagree") != NULL)
        heard = strdup(line);
}

static void leave_with_two_roots(struct sluice_comm **comm, int rank)
{
    int32_t word = rank;

    EXPECT(sluice_broadcast(*comm, &word, &word, 1, SLUICE_I32, rank, NULL) == 0);
    if (rank == 1)
        rest(*comm, 10, false);
}

static void calls_that_nobody_met_are_told_as_the_last_rank_leaves(void **state)
{
    heard = NULL;
    sl_log_configure("warn");
    sl_log_set_sink(note_line, NULL);
    RUN(2, "", leave_with_two_roots);
    sl_log_set_sink(NULL, NULL);
    assert_non_null(heard);
    assert_string_equal(
        heard, "comm: ranks disagree on collective number 1: rank 0 called broadcast(1 i32, root "
               "0), rank 1 "
               "called broadcast(1 i32, root 1); noticed as rank 1 destroyed the communicator");
    free(heard);
}

/* Each rank is the root of its own broadcasts, more of them than are remembered. */
static void many_with_two_roots(struct sluice_comm **comm, int rank)
{
    int32_t word = rank;
    bool told = false;

    for (unsigned i = 0; i < 2 * SL_HISTORY && !told; i++)
        told = sluice_broadcast(*comm, &word, &word, 1, SLUICE_I32, rank, NULL) != 0;
    if (!told)
        EXPECT_ERROR(sluice_barrier(*comm, NULL), -EPROTO,
                     "called broadcast(1 i32, root 0), rank 1 called broad");
    EXPECT(strstr(sluice_last_error(), "or one before") == NULL);
}

static void of_many_calls_that_differ_one_that_is_remembered_is_told(void **state)
{
    RUN(2, "INFLIGHT_MAX=1000", many_with_two_roots);
}

/* Most likely the one that calls something else than all others is wrong. */
static void one_of_three(struct sluice_comm **comm, int rank)
{
    int32_t word = rank, sum;
    enum sluice_op op = rank == 1 ? SLUICE_MAX : SLUICE_SUM;

    EXPECT_ERROR(sluice_allreduce(*comm, &word, &sum, 1, SLUICE_I32, op, NULL), -EPROTO,
                 "ranks disagree on collective number 1");
    EXPECT((*comm)->health.error.culprit == 1);
}

static void the_rank_that_differs_from_all_others_is_blamed(void **state)
{
    RUN(3, "", one_of_three);
}

/* The same by windows: a root needs nothing of the other rank, but looks where it is before it
 * writes a slot again. */
static void own_roots(struct sluice_comm **comm, int rank)
{
    int32_t word = rank;
    int err = 0;

    for (unsigned i = 0; i < 3 * SL_WIN_SLOTS && err == 0; i++)
        err = sluice_broadcast(*comm, &word, &word, 1, SLUICE_I32, rank, NULL);
    EXPECT(err == -EPROTO);
}

static void roots_that_differ_are_noticed_while_both_run_ahead(void **state)
{
    RUN(2, "ALGO=flat", own_roots);
}

/* The call that differs is behind more calls than one message tells of. */
static void one_of_many(struct sluice_comm **comm, int rank)
{
    int32_t word = rank;

    EXPECT(sluice_barrier(*comm, NULL) == 0);
    EXPECT(sluice_broadcast(*comm, &word, &word, 1, SLUICE_I32, rank, NULL) == 0);
    for (unsigned i = 0; i < 100; i++)
        EXPECT(sluice_broadcast(*comm, &word, &word, 0, SLUICE_I32, 0, NULL) == 0);
    EXPECT_ERROR(sluice_barrier(*comm, NULL), -EPROTO,
                 "disagree on collective number 2: rank 0 called broadcast(1 ");
}

static void the_first_of_the_calls_that_differ_is_found(void **state)
{
    RUN(2, "", one_of_many);
}

/* ---- what others are told ---- */

static char long_text[SL_ERROR_TEXT_MAX];

static void make_long(size_t len)
{
    for (size_t i = 0; i < len; i++)
        long_text[i] = (char)('!' + i * 7 % 90);
    long_text[len] = '\0';
}

/* The last error is the one that another rank told: its own operation may stand behind. */
static bool is_told_whole(void)
{
    size_t len = strlen(long_text);
    const char *text = sluice_error_text();

    return strncmp(text, long_text, len) == 0 &&
           (text[len] == '\0' || strncmp(text + len, "; here: ", 8) == 0) &&
           sluice_error_code() == -EIO && sluice_error_culprit() == 5 &&
           strcmp(sluice_error_area(), "tcp") == 0;
}

/* Rank 6 is connected to rank 1 alone: rank 0 hears it of that, ranks 2 to 4 of rank 0. */
static void fail_long(struct sluice_comm **comm, int rank)
{
    int32_t word;

    if (rank == 6) {
        sl_comm_fail(*comm, -EIO, 5, "%s", long_text);
        snprintf((*comm)->health.error.area, sizeof((*comm)->health.error.area), "tcp");
        sl_health_tear_down(*comm);
        return;
    }
    EXPECT(sl_comm_peer(*comm, 6)->ep == NULL || rank == 1);
    EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, rank == 0 ? 1 : (rank - 1) / 4, NULL) == -EIO);
    EXPECT(is_told_whole());
}

static void an_error_of_any_length_is_told_whole_from_rank_to_rank(void **state)
{
    static const size_t lengths[] = {0, 1, 156, 157, 336, 337, 2000, SL_ERROR_TEXT_MAX - 1};

    (void)state;
    world_maps = false;
    for (size_t i = 0; i < SL_ARRAY_LEN(lengths); i++) {
        make_long(lengths[i]);
        const char *why = world_run(8, "", fail_long);

        if (why != NULL)
            fail_msg("of %zu bytes: %s", lengths[i], why);
    }
    world_maps = true;
}

/* An abort as it travels. */
struct piece {
    struct sl_ctrl_head head;
    uint16_t len, at;
    uint8_t bytes[180];
};

/* So many bytes of an error whose text is made of that letter, from at on. */
static struct piece piece_of(const struct sluice_comm *comm, char letter, uint16_t len, uint16_t at)
{
    struct piece msg = {
        .head = {.type = SL_CTRL_ABORT, .channel = comm->channel}, .len = len, .at = at};
    struct sl_error error = {.code = -EIO, .culprit = 1, .area = "tcp"};
    size_t piece = sizeof(error) - at < sizeof(msg.bytes) ? sizeof(error) - at : sizeof(msg.bytes);

    memset(error.text, letter, sizeof(error.text));
    memcpy(msg.bytes, (char *)&error + at, piece);
    return msg;
}

static void hear_piece(struct sluice_comm *comm, uint32_t from, char letter, uint16_t len,
                       uint16_t at)
{
    struct piece msg = piece_of(comm, letter, len, at);

    sl_health_ctrl(comm, from, &msg, sizeof(msg));
}

static bool loses;

/* Rank 1 says the first piece of its error, and is as if stopped, or its connections end without a
 * word. Rank 2 hears of rank 0 alone. */
static void fail_and_stop(struct sluice_comm **comm, int rank)
{
    static const char end[] = " ... (in full at rank 1); here: ";
    uint64_t start = sl_now((*comm)->worker->clock);
    int32_t word;

    if (rank == 1) {
        struct piece msg = piece_of(*comm, 'a', 2000, 0);
        struct sl_ep *ep = sl_comm_peer(*comm, 0)->ep;

        EXPECT(ep->iface->ops->ctrl(ep, &msg, sizeof(msg)) == 0);
        if (loses)
            sl_comm_fail(*comm, -EIO, 1, "no more is said");
        else
            rest(*comm, 1000, false);
        return;
    }
    EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, rank == 0 ? 1 : 0, NULL) == -EIO);
    uint64_t ms = (sl_now((*comm)->worker->clock) - start) / SL_NS_PER_MS;

    EXPECT(loses ? ms < 10 : ms >= 50 && ms < 200); /* of 400 */
    EXPECT(sluice_error_code() == -EIO && sluice_error_culprit() == 1);
    EXPECT(strcmp(sluice_error_area(), "tcp") == 0);
    EXPECT(strspn(sluice_error_text(), "a") == 156);
    EXPECT(strncmp(sluice_error_text() + 156, end, strlen(end)) == 0);
}

static void of_a_rank_that_stops_in_its_error_the_first_piece_counts(void **state)
{
    (void)state;
    world_maps = false;
    for (int i = 0; i < 2; i++) {
        loses = i == 1;
        const char *why = world_run(3, "", fail_and_stop);

        if (why != NULL)
            fail_msg("%s: %s", loses ? "it is lost" : "it is stopped", why);
    }
    world_maps = true;
}

/* Ranks 1 and 2 tell rank 0 an error at once, piece by piece. */
static void hear_two(struct sluice_comm **comm, int rank)
{
    if (rank != 0)
        return;
    hear_piece(*comm, 1, 'a', 500, 0);
    hear_piece(*comm, 2, 'b', 500, 0);
    hear_piece(*comm, 2, 'b', 500, 180);
    hear_piece(*comm, 1, 'a', 500, 180);
    hear_piece(*comm, 2, 'b', 500, 360);
    EXPECT((*comm)->health.error.code == 0);
    hear_piece(*comm, 1, 'a', 500, 360);
    EXPECT((*comm)->health.error.code == -EIO);
    EXPECT(strspn((*comm)->health.error.text, "a") == 500 - 24);
    EXPECT((*comm)->health.error.text[500 - 24] == '\0');
}

/* Pieces that are none, of rank 1, and an error that has no room for its text. */
static void hear_nonsense(struct sluice_comm **comm, int rank)
{
    uint64_t start = sl_now((*comm)->worker->clock);

    if (rank != 0)
        return;
    hear_piece(*comm, 1, 'a', 23, 0);
    hear_piece(*comm, 1, 'a', sizeof(struct sl_error), 0);
    hear_piece(*comm, 1, 'a', 0, 0);
    hear_piece(*comm, 1, 'a', 500, 180);
    EXPECT((*comm)->health.error.code == 0 && (*comm)->health.told_len == 0);
    /* It begins again and again, and never goes on: that does not put the end off. */
    while ((*comm)->health.error.code == 0) {
        EXPECT(sl_now((*comm)->worker->clock) - start < 100 * SL_NS_PER_MS);
        hear_piece(*comm, 1, 'a', 500, 0);
        hear_piece(*comm, 1, 'a', 500, 360);
        hear_piece(*comm, 1, 'a', 4000, 180);
        EXPECT((*comm)->health.told <= 180);
        (*comm)->worker->idle((*comm)->worker);
        sl_comm_idle(*comm, sl_comm_progress(*comm), false);
    }
    EXPECT(strspn((*comm)->health.error.text, "a") == 156);
}

/* What this rank finds out meanwhile is no better explanation. */
static void fail_meanwhile(struct sluice_comm **comm, int rank)
{
    if (rank != 0)
        return;
    hear_piece(*comm, 1, 'a', 500, 0);
    sl_comm_fail(*comm, -EPROTO, 2, "it is something else");
    EXPECT((*comm)->health.error.code == -EIO && (*comm)->health.error.culprit == 1);
    EXPECT(strspn((*comm)->health.error.text, "a") == 156);
}

static void the_first_rank_that_tells_an_error_is_heard_to_its_end(void **state)
{
    RUN(3, "", hear_two);
    RUN(3, "", fail_meanwhile);
}

static void pieces_that_are_none_are_passed_over(void **state)
{
    RUN(2, "", hear_nonsense);
}

/* A transport that has as much to say of a loss as the eight paths of a connection. */
#define LOSS_BYTES 1900
#define EP_BYTES 200

static char loss_text[LOSS_BYTES + 1], ep_text[EP_BYTES + 1];
static const struct sl_transport_ops *terse;
static struct sl_transport_ops wordy;
static struct sluice_comm *wordy_comm;
static bool was_told;

static int wordy_progress(struct sl_iface *iface, unsigned budget)
{
    if (!was_told)
        iface->handler.down(NULL, sl_comm_peer(wordy_comm, 1)->ep, -EHOSTUNREACH, loss_text);
    was_told = true;
    return terse->progress(iface, budget);
}

static void wordy_describe(const struct sl_ep *ep, char *out, size_t cap)
{
    (void)ep;
    snprintf(out, cap, "%s", ep_text);
}

static void lose_with_many_words(struct sluice_comm **comm, int rank)
{
    static const char end[] = " bytes so far, no progress for 0.";
    struct sl_iface_slot *slot = &(*comm)->worker->slots[0];
    int32_t word;

    if (rank == 1) {
        rest(*comm, 1000, false);
        return;
    }
    wordy_comm = *comm;
    terse = slot->iface->ops;
    wordy = *terse;
    wordy.progress = wordy_progress;
    wordy.ep_describe = wordy_describe;
    slot->ops = slot->iface->ops = &wordy;
    EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, 1, NULL), -EHOSTUNREACH,
                 "rank 1 is lost: <");
    EXPECT(strstr(sluice_last_error(), loss_text) != NULL);
    EXPECT(strstr(sluice_last_error(), ep_text) != NULL);
    const char *at = strstr(sluice_last_error(), end);

    EXPECT(at != NULL && strcmp(at + strlen(end) + 3, " s") == 0);
    EXPECT(sluice_error_code() == -EHOSTUNREACH);
    EXPECT(sluice_error_culprit() == 1);
    EXPECT(strcmp(sluice_error_area(), wordy.name) == 0); /* it detected the loss */
    EXPECT(sluice_error_text() == sluice_last_error());
}

static void what_a_transport_says_is_told_whole(void **state)
{
    (void)state;
    snprintf(loss_text, sizeof(loss_text), "<%0*d>", LOSS_BYTES - 2, 1);
    snprintf(ep_text, sizeof(ep_text), "<%0*d>", EP_BYTES - 2, 2);
    was_told = false;
    RUN(2, "", lose_with_many_words);
}

/* ---- who tells people ---- */

static unsigned speakers;
static int speaker;

/* All wait for rank 0, which is as if stopped, or has gone without a word. */
static void wait_for_rank_0(struct sluice_comm **comm, int rank)
{
    int32_t word;

    if (rank == 0) {
        rest(*comm, 1000, false);
        return;
    }
    EXPECT_ERROR(sluice_recv(*comm, &word, 1, SLUICE_I32, 0, NULL), -ETIMEDOUT, "rank 0");
    speakers += (*comm)->health.is_speaker;
    speaker = (*comm)->health.is_speaker ? rank : speaker;
}

static void wait_for_rank_1(struct sluice_comm **comm, int rank)
{
    int32_t word;

    if (rank == 1)
        sluice_comm_abort(*comm);
    EXPECT(sluice_recv(*comm, &word, 1, SLUICE_I32, rank == 1 ? 0 : 1, NULL) == -ECANCELED);
    speakers += (*comm)->health.is_speaker;
    speaker = (*comm)->health.is_speaker ? rank : speaker;
}

static void of_the_ranks_that_live_one_tells_people(void **state)
{
    (void)state;
    speakers = 0;
    RUN(4, "", wait_for_rank_0);
    assert_int_equal(speakers, 1);
    assert_int_equal(speaker, 1); /* rank 0 may not be able to */
    speakers = 0;
    RUN(4, "", wait_for_rank_1);
    assert_int_equal(speakers, 1);
    assert_int_equal(speaker, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_without_operations_is_not_time_without_progress),
        cmocka_unit_test(an_operation_has_the_whole_timeout),
        cmocka_unit_test(time_away_is_not_time_without_progress),
        cmocka_unit_test(what_a_silent_rank_said_long_ago_leads_to_nobody),
        cmocka_unit_test(a_chain_of_waits_leads_to_its_end),
        cmocka_unit_test(a_chain_of_waits_leads_beyond_those_that_are_heard),
        cmocka_unit_test(of_each_rank_one_status_is_kept_to_be_passed_on),
        cmocka_unit_test(what_was_called_under_a_disputed_number_stays),
        cmocka_unit_test(who_is_no_member_is_not_heard),
        cmocka_unit_test(a_rank_that_left_is_missed_only_by_who_needs_it),
        cmocka_unit_test(calls_that_nobody_met_are_told_as_the_last_rank_leaves),
        cmocka_unit_test(of_many_calls_that_differ_one_that_is_remembered_is_told),
        cmocka_unit_test(roots_that_differ_are_noticed_while_both_run_ahead),
        cmocka_unit_test(the_rank_that_differs_from_all_others_is_blamed),
        cmocka_unit_test(the_first_of_the_calls_that_differ_is_found),
        cmocka_unit_test(an_error_of_any_length_is_told_whole_from_rank_to_rank),
        cmocka_unit_test(of_a_rank_that_stops_in_its_error_the_first_piece_counts),
        cmocka_unit_test(the_first_rank_that_tells_an_error_is_heard_to_its_end),
        cmocka_unit_test(pieces_that_are_none_are_passed_over),
        cmocka_unit_test(what_a_transport_says_is_told_whole),
        cmocka_unit_test(of_the_ranks_that_live_one_tells_people),
    };

    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
