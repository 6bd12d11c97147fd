/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the MPI program share. It knows the result of every call from the numbers that
 * it puts in, so it tells right from wrong with the shim, without it, and under any MPI. Each part
 * is a case: rank 0 prints "ok NAME" or "not ok NAME" after asking all ranks by messages, which the
 * shim leaves alone.
 */
#ifndef MPI_CHECK_H
#define MPI_CHECK_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern int world_rank, world_size;

/* Counts a failure and prints the first few, with where it happened. Returns cond. */
bool check(bool cond, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* True when every rank of comm has the same bytes: asked by messages. */
bool same_everywhere(MPI_Comm comm, const void *bytes, size_t len);

/* Types as small whole numbers. */
struct kind {
    const char *name;
    MPI_Datatype type;
    int size;
    char what; /* i, u, f, c (pair of f) */
};
extern struct kind kinds[];
extern int kind_count;

void put(const struct kind *k, void *buf, size_t idx, long value);
long get(const struct kind *k, const void *buf, size_t idx);
void *room(const struct kind *k, size_t count);

/* The communicators that cases run on: the world, a copy, halves, and the world backwards. */
#define COMM_KINDS 4
MPI_Comm make_comm(int which);
void drop_comm(int which, MPI_Comm comm);

/* The parts. */
void reductions(void);
void complex_products(void);
void sums_in_any_order(void);
void moves(void);
void blocks(void);
void mixed_types(void);
void passed_on(void);
void lives(void);
void waits(void);
void threads(int provided);
void copies(void);

#endif
