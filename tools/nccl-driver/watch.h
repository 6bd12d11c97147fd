/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of a case and the parent that started them share: what each thread is doing and
 * since when, the first failure of each rank, measurements, and a few words by which ranks agree.
 */
#pragma once

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MOST 4
#define FIGURES_MOST 128
#define MS 1000000ull

enum watch_role { ROLE_MAIN, ROLE_SERVICE, ROLE_PROGRESS, ROLES };

struct doing {                  /* of one thread; written by it, read by the parent */
    _Atomic(const char *) call; /* in the plugin, or the wait that it is in; NULL: neither */
    atomic_int is_wait;
    atomic_int comm;     /* -1: none */
    atomic_long message; /* -1: none */
    atomic_uint_fast64_t since_ns;
};

struct figure { /* one line of a benchmark */
    char what[24];
    uint64_t bytes;
    unsigned in_flight;
    double value;
};

struct seat {
    _Atomic(pid_t) pid;
    struct doing doing[ROLES];
    atomic_int failed, skipped, finished;
    char text[480]; /* of the failure or the skip */
};

struct shared {
    struct seat seats[RANKS_MOST];
    atomic_int stop;              /* a rank failed: nobody waits any more */
    atomic_uint_fast64_t word[8]; /* the case's own */
    uint64_t call_ns, deadline_ns;
    unsigned figure_count;
    struct figure figures[FIGURES_MOST];
};

extern struct shared *watch_shared;

uint64_t watch_now(void);
/* Says who this thread is. */
void watch_sit(int rank, enum watch_role role);
/* Which comm and message the calls that follow are about. */
void watch_about(int comm, long message);
void watch_enter(const char *call);
/* limited: the call may not block. */
void watch_leave(bool limited);
void watch_wait(const char *what);
/* True once the wait has lasted too long, which is a failure, or a rank failed. deadline_ns of 0:
 * the common one. */
bool watch_over(uint64_t deadline_ns);
/* Notes the first failure of this rank. Returns -1. */
int watch_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The case does not apply, and why. Returns 0. */
int watch_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool watch_failed(void);
void watch_figure(const char *what, uint64_t bytes, unsigned in_flight, double value);
/* Touching this memory from now on is told apart from other faults. */
void watch_retire(const void *start, size_t len);
void watch_signals(void);
/* In the parent: writes what this rank is in, if it is in a call for longer than allowed. */
bool watch_stuck(int rank, char *text, size_t cap);
/* Writes "rank 1, service thread, accept, comm 3" of whatever it is in. */
void watch_where(int rank, char *text, size_t cap);
