/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank as NCCL makes one: a service thread that listens, connects, accepts, registers and closes,
 * all that is pending in turn, beside a progress thread that moves the data. Ranks speak to each
 * other over socketpairs.
 */
#pragma once

#include "tools/nccl-driver/net.h"
#include "tools/nccl-driver/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum job_kind {
    JOB_LISTEN,
    JOB_CONNECT,
    JOB_ACCEPT,
    JOB_REG,
    JOB_DEREG,
    JOB_CLOSE_SEND,
    JOB_CLOSE_RECV,
    JOB_CLOSE_LISTEN
};

struct job { /* for the service thread */
    enum job_kind kind;
    int conn;     /* for messages */
    void *ctx;    /* listen, connect */
    void *comm;   /* in: what it is about; out of listen, connect, accept: the new one */
    void *listen; /* accept */
    uint8_t *handle;
    void *data, *mr;
    size_t len;
    bool may_fail; /* the result is looked at by the caller */
    int result;
    atomic_uint polls;
    bool done;
    struct job *next;
};

struct conn { /* one way, from one rank to another or to itself */
    int id, from, to;
    void *send_comm, *recv_comm, *listen;
    uint8_t handle[NET_HANDLE_BYTES];
    struct job connect, accept;
};

struct flow;

struct rank {
    int idx, count, dev;
    struct net *net;
    void *ctx;
    struct net_props props;
    uint64_t rng, turn_rng; /* of the thread that runs the case; of the progress thread */
    int boot[RANKS_MOST];   /* a socketpair's end to each rank */
    pthread_mutex_t lock;
    pthread_cond_t wake_service, wake_progress, news;
    pthread_t service, progress;
    bool stop_service, stop_progress, running;
    atomic_uint idle; /* turns of the progress thread in a row in which nothing moved */
    struct job *jobs;
    struct flow *flows;
};

/* Threads and the plugin's context; undone by rank_stop(). 0 or -1 after watch_fail(). */
int rank_start(struct rank *r);
/* In NCCL's order: the progress thread; then both, jobs still pending stay undone; then finalize,
 * too. */
void rank_stop_progress(struct rank *r);
void rank_stop_threads(struct rank *r);
int rank_stop(struct rank *r);

void rank_submit(struct rank *r, struct job *job);
int rank_await(struct rank *r, struct job *job);
int rank_do(struct rank *r, struct job *job);
/* With the lock held: returns at news or soon, for the caller to look at its deadline. */
void rank_news_wait(struct rank *r);

/* All connections of the list, their steps interleaved. Every rank calls it with the same list. */
int rank_connect(struct rank *r, struct conn *conns, unsigned count);
void rank_close(struct rank *r, struct conn *conns, unsigned count);

/* Between ranks, in order, with the common deadline. */
int boot_send(struct rank *r, int peer, const void *data, size_t len);
int boot_recv(struct rank *r, int peer, void *data, size_t len);
int boot_barrier(struct rank *r);

uint64_t rank_random(uint64_t *rng);
