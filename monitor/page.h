/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state page of a rank, as it is read once a period: its communicators, the operation that it
 * waits for, its paths, how many events of each kind it has noted.
 *
 * Nothing is mapped, locked or written: a rank is never disturbed, and what a page holds may be
 * meant to hurt (core/state_read.h). Each reading has a bound, whatever a page says of itself; what
 * did not fit into one comes in the next.
 */
#ifndef SL_MONITOR_PAGE_H
#define SL_MONITOR_PAGE_H

#include "monitor/path.h"

#include "core/event.h"
#include "core/state_read.h"

#define SL_MON_PAGE_COMMS 64
#define SL_MON_PAGE_OPS 64     /* that are looked at; the oldest is kept */
#define SL_MON_PAGE_PATHS 1024 /* of one page; more are left out */

struct sl_mon_page_comm {
    uint32_t place;
    uint64_t number; /* 0: there is none */
    uint64_t begun[2], ended[2];
    uint64_t id, made_ns, idle_ns, updated_ns;
    uint32_t rank, size, lost, flags, disputed;
    uint64_t shape; /* of the last collective: its place, from 1; 0: not known */
    int32_t error, culprit;
    bool is_new_break; /* it broke since the last reading */
};

struct sl_mon_page_change {
    uint64_t begun[2], ended[2]; /* collectives, sends and receives: since the last reading */
    uint64_t broken;             /* communicators that broke */
    uint64_t events[SL_EVENT_KINDS_MAX];
};

struct sl_mon_page {
    int fd; /* borrowed */
    uint64_t readings;
    struct sl_state_reader reader;
    struct sl_state_process self;
    struct sl_mon_page_comm comms[SL_MON_PAGE_COMMS];
    unsigned comm_count;
    unsigned op_count;     /* that are waited for */
    struct sl_state_op op; /* the oldest of them; op_count > 0 */
    uint64_t op_comm_id;
    uint64_t under_way; /* calls begun and not ended */
    uint64_t events[SL_EVENT_KINDS_MAX];
    char event_names[SL_EVENT_KINDS_MAX][24]; /* [a-z0-9_] */
    struct sl_mon_path *paths;
    unsigned path_count; /* places */
    unsigned path_next;  /* the next to be looked at */
    uint64_t paths_left_out;
};

void sl_mon_page_init(struct sl_mon_page *page, int fd);
void sl_mon_page_fini(struct sl_mon_page *page);

/* All but paths. -EPROTO: it is no page (any more). */
int sl_mon_page_read(struct sl_mon_page *page, struct sl_mon_page_change *out);

/* Some of its paths. port: the number of a port by its name, or -1. changed: of each that was
 * read. */
void sl_mon_page_paths(
    struct sl_mon_page *page, uint64_t now_ns, int16_t (*port)(void *arg, const char *name),
    void (*changed)(void *arg, int16_t port, const struct sl_mon_path_change *change), void *arg);

/* What it does, as a sentence without its end: "waits in allreduce number 12 ..., since 3.1 s". */
void sl_mon_page_text(const struct sl_mon_page *page, uint64_t now_ns, char *out, size_t cap);
/* Why that communicator is broken: a text of the rank. */
void sl_mon_page_why(const struct sl_mon_page *page, const struct sl_mon_page_comm *comm, char *out,
                     size_t cap);

#endif
