/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meetings on loopback for tests: ranks are threads, with what each does and how it went; strangers
 * are sockets that the test drives by hand.
 */
#ifndef SL_TESTS_MEETING_H
#define SL_TESTS_MEETING_H

#include "core/log.h"
#include "launch/rendezvous.h"
#include "launch/wire.h"

#include <pthread.h>
#include <stdatomic.h>

#define RANKS_MAX 48
#define LEN_MAX 70000

/* What one rank does, and how it went. */
struct actor {
    struct sl_party party;
    struct sl_root root;
    const struct sl_card *card; /* instead of root */
    struct sl_listeners listeners;
    size_t len;        /* of its share */
    unsigned rounds;   /* exchanges; 0: leaves at once */
    unsigned delay_ms; /* before it dials */
    unsigned pause_ms; /* before its second exchange */
    bool leave_early;  /* after the first exchange */
    bool nearby;       /* what its exchange says of it */
    uint8_t *session;  /* gets the exchange's */
    int err;
    char why[1024];
    pthread_t thread;
};

extern struct actor actors[RANKS_MAX];

extern atomic_int refusals; /* lines in the log */
extern char last_refusal[1024], last_warning[1024];

/* The sink of the log in all these tests. */
void meeting_log(void *arg, enum sl_log_level level, const char *area, const char *line);

/* Whether the last line of a kind has this in it; a rank may be writing the next one. */
bool said(const char *last, const char *words);

/* Ranks 0..size-1 that agree on everything, and a place for them; nobody acts yet. */
void prepare(int size, uint64_t timeout_ms, const char *secret);
void go(int i);
void wait_for(int i);
void all_act(int size);
void assert_went_well(int size);

/* A connection to rank 0 by TCP. */
int knock(void);

/* Until the other side has closed; what it sent before goes to bytes. */
size_t read_to_end(int fd, uint8_t *bytes, size_t cap);
void read_exactly(int fd, void *bytes, size_t len);

/* The last rank of a job without a secret, as far as its proof in a frame of that kind, over fd. */
void prove_by_hand(int fd, int size, enum sl_frame_kind kind);
/* ... as far as its welcome. */
int join_by_hand(int fd, int size);
/* ... until it has its place in the tree, as a child of rank 0 without children. */
void seat_by_hand(int fd);
/* A connection to rank 0 by its unix socket, which blocks. */
int knock_nearby(void);

#endif
