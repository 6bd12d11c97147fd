/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state page: a process shows others its communicators, operations, paths and events.
 * docs/state.md has the meaning of each field; this file is its layout.
 *
 * A header, a table of sections, and the sections: arrays of records of one size. Sizes and places
 * stand in the header and the table, so that a reader copes with a page that is older or newer than
 * itself: it takes of each record the part that both know, and passes over sections that it does
 * not know.
 *
 * Each record begins with its turn: 0, never used; odd, being written; even, whole
 * (core/seqlock.h). A record of events has its number there instead. Texts end with a zero. Times
 * are CLOCK_MONOTONIC, 0: never.
 */
#ifndef SL_CORE_STATE_H
#define SL_CORE_STATE_H

#include "core/histogram.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SL_STATE_MAGIC "SLUICEST"
#define SL_STATE_VERSION 1 /* raised when an older reader would read nonsense */

struct sl_state_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;  /* the table begins there */
    uint32_t section_bytes; /* of an entry of the table */
    uint32_t section_count;
    uint64_t file_bytes;
};

enum sl_state_kind {
    SL_STATE_PROCESS = 1,   /* struct sl_state_process: one */
    SL_STATE_COMM = 2,      /* struct sl_state_comm */
    SL_STATE_OP = 3,        /* struct sl_state_op */
    SL_STATE_PATH = 4,      /* struct sl_state_path */
    SL_STATE_SHAPE = 5,     /* struct sl_state_shape */
    SL_STATE_EVENT = 6,     /* struct sl_event_record */
    SL_STATE_EVENT_ROW = 7, /* struct sl_event_row, by kind of event */
    SL_STATE_ERROR = 8,     /* struct sl_state_error */
    SL_STATE_CALL = 9,      /* struct sl_state_call, a ring */
    /* In the file of NCCL's profiler, which has this form, too (tools/nccl/events.h): */
    SL_STATE_NCCL = 16,      /* struct sl_nccl_event_head: one */
    SL_STATE_NCCL_COMM = 17, /* struct sl_nccl_event_comm */
    SL_STATE_NCCL_OPEN = 18, /* struct sl_nccl_event_record, of what is going on */
    SL_STATE_NCCL_OVER = 19, /* the same, a ring of what is over */
};

struct sl_state_section {
    uint32_t kind; /* enum sl_state_kind */
    uint32_t record_bytes;
    uint32_t count;
    uint32_t zero;
    uint64_t offset;           /* of the first record, in the file */
    _Atomic uint64_t left_out; /* things that found no record, now */
};

#define SL_STATE_ENDED 1u /* the process has ended in good order */
#define SL_STATE_KEPT 2u  /* the page stays after it */

struct sl_state_process {
    uint64_t turn;
    int32_t pid; /* in its own namespace */
    uint32_t uid;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat */
    uint64_t pid_space;   /* inode of /proc/PID/ns/pid */
    uint64_t made_ns, made_wall_s;
    uint64_t life;       /* of a process among those that descend from each other by fork() */
    int32_t rank, size;  /* by its launcher; -1: not known */
    uint32_t flags;      /* SL_STATE_ENDED, SL_STATE_KEPT */
    uint32_t comms_made; /* so far */
    char program[16], version[48], host[64], job[64];
};

#define SL_STATE_BROKEN 1u    /* error says why */
#define SL_STATE_TORN_DOWN 2u /* after that: its endpoints are gone */
#define SL_STATE_SPEAKER 4u   /* after that: of the ranks that live, this one tells people */
#define SL_STATE_WINDOWS 8u   /* ranks of this host share windows */
#define SL_STATE_THREAD 16u   /* a progress thread moves it */
#define SL_STATE_CROWDED 32u  /* more ranks on this host than cores */

/* Calls, by plain stores of the calling thread: numbers by themselves, outside of the turn. [0]
 * collectives, [1] sends and receives. */
struct sl_state_calls {
    _Atomic uint64_t begun[2]; /* how many, and above bit 48 the place of the last one's shape, from
                                * 1; 0 there: it is not shown */
    _Atomic uint64_t ended[2];
};

#define SL_STATE_SHAPE_SHIFT 48

struct sl_state_comm {
    uint64_t turn;
    uint64_t number; /* of the communicators that the process made, from 1; 0: this place is free */
    uint64_t id;     /* the same on all its ranks */
    uint64_t made_ns, updated_ns;
    uint64_t idle_ns; /* no data moved for so long, while something waited */
    uint32_t rank, size, hosts, local_ranks;
    uint32_t connected, lost, left; /* peers with an endpoint; gone; that said goodbye */
    uint32_t flags;
    int32_t error;   /* negative errno, or 0 */
    int32_t culprit; /* rank to blame, or -1 */
    int32_t lost_rank, lost_status;
    uint32_t disputed; /* number of the first call that ranks made differently, or 0 */
    uint32_t paths_left_out;
    char transports[48];
    char error_text[432]; /* the begin of it: struct sl_state_error has it whole */
    struct sl_state_calls calls;
    uint64_t room[3];
};

/* An operation that has been waited for. */
struct sl_state_op {
    uint64_t turn;
    uint64_t comm;     /* number of its communicator; 0: this place is free */
    uint64_t since_ns; /* it was under way then at the latest */
    uint64_t updated_ns;
    uint64_t idle_ns;
    uint64_t count;       /* elements */
    uint64_t bytes;       /* of them */
    uint64_t moved;       /* bytes so far */
    uint32_t seq;         /* number of the collective on its communicator; 0: a send or a receive */
    int32_t root;         /* or the peer of a send or a receive; -1: it has none */
    uint32_t step, steps; /* step == steps: at none */
    int32_t peer;         /* that it waits for, or -1 */
    uint32_t in_flight;   /* messages under way */
    char coll[16], dtype[8], redop[8], algo[16];
    char doing[24]; /* "waits for a message of" */
    char path[280]; /* to that peer */
};

/* A shape of calls: struct sl_state_calls points at it. */
struct sl_state_shape {
    uint64_t turn;
    uint64_t comm; /* number of its communicator; 0: this place is free */
    uint64_t count, bytes;
    int32_t root;
    uint32_t steps;
    char coll[16], dtype[8], redop[8], algo[16];
};

#define SL_STATE_PATHS_MAX 4096 /* of a page; a reader looks at no more */

#define SL_STATE_WINDOW_NS 4000000000u

/* How fast a network is, of what one window of time saw. Of rests of messages that came the
 * quickest of the largest, as others waited for their turn, or for a processor. Of writes that this
 * end saw retired their mean: the time in which one was under way, and their bytes, over their
 * count. */
struct sl_state_quickest {
    uint64_t ns, bytes;
    uint32_t messages; /* as large, by a factor of two; all writes */
    uint32_t window;   /* its begin over SL_STATE_WINDOW_NS, plus 1; 0: none */
};

/* One way that an endpoint's bytes take, since the endpoint was made. A transport fills in all from
 * peer on (ep_stats). */
struct sl_state_path {
    uint64_t turn;
    uint64_t comm; /* number of its communicator; 0: this place is free */
    uint64_t updated_ns;
    int32_t peer, number; /* number: as events say it; -1: none */
    uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
    uint64_t resent;                       /* messages that went by another path after a failure */
    uint64_t failures, ups;                /* how often it ended, and came up */
    uint64_t histogram[SL_HISTOGRAM_BINS]; /* of times from posting to completion */
    char name[128];                        /* "rxe0:1 > 198.51.100.2" */
    char state[16];                        /* "up", "down", "connecting" */
    char why[192];                         /* its last failure, also when it is up again; or "" */
    /* The route and the part of what it sends; 0: unknown, or of no meaning to this transport. */
    uint32_t label;       /* flow label */
    uint16_t source_port; /* of UDP */
    uint8_t weight, is_avoided;
    /* Of a transport whose sender does not see its messages arrive (histogram is empty), what this
     * process saw of the peer's: how long it waited for the rest of messages that had begun to
     * come, how many bytes these rests were, and of how many messages. 0: not measured. */
    uint64_t arriving_ns, arriving_bytes, arriving_messages;
    uint64_t rtt_ns;                      /* the least round trip of some minutes */
    struct sl_state_quickest quickest[2]; /* of these rests, or, where there is a histogram, of
                                           * writes: in the last window that had any, and in the one
                                           * before it */
};

/* A path whose packets are sprayed over routes has a record for each of these, too: its number is
 * the path's, and this for each route from the first on. */
#define SL_STATE_PATH_ROUTE 256

/* Why a communicator is broken: struct sl_error. */
struct sl_state_error {
    uint64_t turn;
    uint64_t comm; /* number of its communicator; 0: this place is free */
    uint64_t updated_ns;
    int32_t code, culprit;
    char area[16], text[4096];
};

/* A call that is over, of those that were timed. */
struct sl_state_call {
    uint64_t turn; /* grows from call to call: twice its number, from 1 */
    uint64_t comm; /* number of its communicator */
    uint64_t issued_ns, ended_ns;
    uint64_t bytes; /* of its elements */
    uint32_t seq;   /* of a collective; of a send or receive: of its peer and direction, from 1 */
    int32_t peer;   /* of a send or a receive; -1: it is a collective */
    char coll[16];
};

_Static_assert(sizeof(struct sl_state_header) == 32 && sizeof(struct sl_state_section) == 32 &&
                   sizeof(struct sl_state_process) == 264 && sizeof(struct sl_state_comm) == 640 &&
                   sizeof(struct sl_state_op) == 440 && sizeof(struct sl_state_shape) == 88 &&
                   sizeof(struct sl_state_path) == 768 && sizeof(struct sl_state_error) == 4144 &&
                   sizeof(struct sl_state_call) == 64,
               "as docs/state.md says");

#endif
