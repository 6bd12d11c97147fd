/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up run that the tests of the reports print. */
#ifndef SB_SAMPLE_H
#define SB_SAMPLE_H

#include "bench.h"
#include "core/err.h"
#include "multipath/events.h"
#include "paths.h"

#include <string.h>

#define SAMPLE_ROWS 4

struct sample {
    struct sb_options options;
    struct sb_stat stats[SAMPLE_ROWS][2][2]; /* [row][placement][rank] */
    struct sb_row rows[SAMPLE_ROWS];
    struct sb_results results;
};

static inline void sample_cell(struct sample *s, int row, int place, double time_s, int64_t wrong)
{
    struct sb_cell *cell = &s->rows[row].cell[place];
    struct sb_stat *stats = s->stats[row][place];

    for (int rank = 0; rank < 2; rank++)
        stats[rank] = (struct sb_stat){
            .mean = time_s, .min = time_s / 2, .p50 = time_s, .p99 = 2 * time_s, .max = 4 * time_s};
    *cell = (struct sb_cell){.valid = true,
                             .time_s = time_s,
                             .p50_s = time_s,
                             .p99_s = 2 * time_s,
                             .algbw = (double)s->rows[row].bytes / time_s * 1e-9,
                             .busbw = (double)s->rows[row].bytes / time_s * 1e-9,
                             .wrong = wrong,
                             .iters = 20,
                             .ranks = stats};
}

#define SAMPLE_PATHS 5
#define SAMPLE_EVENTS 6

struct sample_paths {
    struct sb_path paths[SAMPLE_PATHS];
    struct sb_event events[SAMPLE_EVENTS];
    struct sb_paths all;
};

static inline void sample_path(struct sample_paths *s, int i, int rank, int number,
                               const char *name, const char *state, const char *why)
{
    struct sl_state_path *stat = &s->paths[i].stat;

    s->paths[i].rank = rank;
    stat->peer = 1 - rank;
    stat->number = number;
    snprintf(stat->name, sizeof(stat->name), "%s", name);
    snprintf(stat->state, sizeof(stat->state), "%s", state);
    snprintf(stat->why, sizeof(stat->why), "%s", why);
}

/* A kind of which nobody wants to see a line. */
static uint16_t sample_many;
static const struct sl_event_kind sample_kinds[] = {
    {SL_EVENT_FREE, "mr_reg", "bytes", "ns", SL_EVENT_SHOW_NONE}};
static const struct sl_event_set sample_events = {"sample", sample_kinds, 1, &sl_mp_events,
                                                  &sample_many};

static inline void sample_event(struct sample_paths *s, int i, int rank, unsigned kind,
                                uint32_t peer, uint64_t a, uint64_t b)
{
    s->events[i].rank = rank;
    s->events[i].event = (struct sl_event){.time_ns = UINT64_C(1000000001) * (unsigned)(i + 1),
                                           .kind = (uint16_t)kind,
                                           .area = sl_event_area(kind),
                                           .peer = peer,
                                           .a = a,
                                           .b = b};
}

/* Two ranks with two paths, of which one of rank 0 has failed and one of rank 1 had trouble; rank 0
 * used the fallback. */
static inline void sample_paths_init(struct sample_paths *s)
{
    static const char retries[] = "transport retry counter exceeded";

    sl_assert(sl_event_register(&sample_events) == 0);
    memset(s, 0, sizeof(*s));
    sample_path(s, 0, 0, 0, "rxe0:1 > 192.0.2.2", "up", "");
    s->paths[0].stat.sent_bytes = 123456789012;
    s->paths[0].stat.sent_messages = 1000000;
    s->paths[0].stat.received_bytes = 4096;
    s->paths[0].stat.received_messages = 2;
    s->paths[0].stat.ups = 1;
    s->paths[0].stat.label = 0xbeef;
    s->paths[0].stat.source_port = 0xfeed;
    s->paths[0].stat.weight = 25;
    s->paths[0].stat.histogram[11] = 100; /* 1024 to 2048 ns */
    sample_path(s, 1, 0, 1, "rxe2:1 > 2001:db8::2", "down", retries);
    s->paths[1].stat.sent_bytes = 65536;
    s->paths[1].stat.sent_messages = 17;
    s->paths[1].stat.resent = 5;
    s->paths[1].stat.failures = s->paths[1].stat.ups = 2;
    sample_path(s, 2, 0, -1, "tcp (fallback)", "resting", "");
    sample_path(s, 3, 1, 0, "rxe1:1 > 192.0.2.1", "up", "");
    sample_path(s, 4, 1, 1, "rxe3:1 > 2001:db8::1", "up",
                "ended by the peer: transport retry counter exceeded");
    s->paths[4].stat.failures = 1;
    sample_event(s, 0, 0, SL_EVENT_PATH_UP, 1, 0, 1);
    sample_event(s, 1, 0, sample_many, SL_EVENT_NOBODY, 4096, 100);
    sample_event(s, 2, 0, SL_EVENT_PATH_DOWN, 1, 1, 12);
    sample_event(s, 3, 0, SL_EVENT_FALLBACK_OFF, 1, UINT64_MAX, 0);
    sample_event(s, 4, 1, SL_EVENT_PATH_UP, 0, 0, 1);
    sample_event(s, 5, 1, SL_EVENT_RESEND, 0, 1, 5);
    s->all = (struct sb_paths){.paths = s->paths,
                               .path_count = SAMPLE_PATHS,
                               .events = s->events,
                               .event_count = SAMPLE_EVENTS,
                               .dropped = 3};
}

/* The first rows by a codec: encoded, and sent as it is. */
static inline void sample_codec(struct sample *s)
{
    s->options.codec_count = 1;
    snprintf(s->options.codecs[0], SB_CODEC_TEXT, "bq8:seed=7,min=1k");
    for (int row = 0; row < 2; row++) {
        s->rows[row].codec = s->options.codecs[0];
        for (int place = 0; place < 2; place++)
            s->rows[row].cell[place].error = -1;
    }
    s->rows[1].cell[0].wire_bytes = 266240;
    s->rows[1].cell[0].wire_ratio = 0.25390625;
    s->rows[1].cell[0].error = 2.525e-5;
    s->results.row_count = 2;
}

/* Two ranks; the third row has wrong elements, the last has neither size nor in-place half. */
static inline void sample_init(struct sample *s, const struct sb_options *options)
{
    *s = (struct sample){.options = *options};
    s->rows[0] = (struct sb_row){.coll = SB_ALLREDUCE,
                                 .dtype = SLUICE_F32,
                                 .op = SLUICE_SUM,
                                 .root = -1,
                                 .bytes = 8,
                                 .count = 2};
    s->rows[1] = s->rows[0];
    s->rows[1].bytes = 1048576;
    s->rows[1].count = 262144;
    s->rows[2] = (struct sb_row){.coll = SB_BROADCAST,
                                 .dtype = SLUICE_BF16,
                                 .op = -1,
                                 .root = 1,
                                 .bytes = 134217728,
                                 .count = 67108864};
    s->rows[3] = (struct sb_row){.coll = SB_BARRIER, .dtype = SLUICE_F32, .op = -1, .root = -1};
    sample_cell(s, 0, 0, 0.1634e-6, 0);
    sample_cell(s, 0, 1, 12.345e-6, 0);
    sample_cell(s, 1, 0, 131.5e-6, 0);
    sample_cell(s, 1, 1, 1234.5e-6, 0);
    sample_cell(s, 2, 0, 0.0137, 17);
    sample_cell(s, 2, 1, 1.25, -1);
    sample_cell(s, 3, 0, 0.29e-6, 0);
    s->results = (struct sb_results){.facts = {.ranks = 2,
                                               .hosts = 1,
                                               .version = "0.1.0",
                                               .paths = "shm to 1 rank",
                                               .algo = "chosen by cost",
                                               .kernel = "avx2",
                                               .allocation = "malloc"},
                                     .options = &s->options,
                                     .rows = s->rows,
                                     .row_count = SAMPLE_ROWS,
                                     .wrong = 17,
                                     .busbw_sum = 24.5,
                                     .busbw_count = 6};
}

#endif
