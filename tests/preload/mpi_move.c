/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that move: of every type, in place and not, with blocks of one size and of many, dense
 * and not. */
#include "mpi_check.h"

#include <stdlib.h>
#include <string.h>

/* What rank `from` sends as element idx of the block for rank `to` (-1: for all). */
static long sent(const struct kind *k, int from, int to, size_t idx)
{
    return ((long)(idx % 13) * 5 + from * 17 + to * 3) % 50 + (k->what == 'i' ? -20 : 3);
}

static void fill(const struct kind *k, void *buf, size_t at, int from, int to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(k, buf, at + i, sent(k, from, to, i));
}

static void look(const struct kind *k, const char *call, const void *buf, size_t at, int from,
                 int to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!check(get(k, buf, at + i) == sent(k, from, to, i),
                   "%s of %zu %s from rank %d: element %zu is %ld, not %ld", call, count, k->name,
                   from, i, get(k, buf, at + i), sent(k, from, to, i)))
            return;
}

struct setting {
    const struct kind *k;
    MPI_Comm comm;
    int rank, size, root;
    bool in_place;
};

static void bcast(const struct setting *s, size_t n)
{
    void *buf = room(s->k, n);

    if (s->rank == s->root)
        fill(s->k, buf, 0, s->root, -1, n);
    MPI_Bcast(buf, (int)n, s->k->type, s->root, s->comm);
    look(s->k, "bcast", buf, 0, s->root, -1, n);
    free(buf);
}

static void allgather(const struct setting *s, size_t n)
{
    void *in = room(s->k, n), *out = room(s->k, n * (size_t)s->size);

    fill(s->k, s->in_place ? out : in, s->in_place ? n * (size_t)s->rank : 0, s->rank, -1, n);
    MPI_Allgather(s->in_place ? MPI_IN_PLACE : in, (int)n, s->k->type, out, (int)n, s->k->type,
                  s->comm);
    for (int r = 0; r < s->size; r++)
        look(s->k, "allgather", out, n * (size_t)r, r, -1, n);
    free(in);
    free(out);
}

static void gather(const struct setting *s, size_t n)
{
    void *in = room(s->k, n), *out = room(s->k, n * (size_t)s->size);
    bool root = s->rank == s->root, in_place = s->in_place && root;

    fill(s->k, in_place ? out : in, in_place ? n * (size_t)s->rank : 0, s->rank, -1, n);
    MPI_Gather(in_place ? MPI_IN_PLACE : in, (int)n, s->k->type, root ? out : NULL,
               root ? (int)n : -1, root ? s->k->type : MPI_DATATYPE_NULL, s->root, s->comm);
    for (int r = 0; r < s->size && root; r++)
        look(s->k, "gather", out, n * (size_t)r, r, -1, n);
    free(in);
    free(out);
}

static void scatter(const struct setting *s, size_t n)
{
    void *in = room(s->k, n * (size_t)s->size), *out = room(s->k, n);
    bool root = s->rank == s->root, in_place = s->in_place && root;

    for (int r = 0; r < s->size && root; r++)
        fill(s->k, in, n * (size_t)r, s->root, r, n);
    MPI_Scatter(root ? in : NULL, root ? (int)n : -1, root ? s->k->type : MPI_DATATYPE_NULL,
                in_place ? MPI_IN_PLACE : out, (int)n, s->k->type, s->root, s->comm);
    look(s->k, "scatter", in_place ? in : out, in_place ? n * (size_t)s->rank : 0, s->root, s->rank,
         n);
    free(in);
    free(out);
}

static void alltoall(const struct setting *s, size_t n)
{
    void *in = room(s->k, n * (size_t)s->size), *out = room(s->k, n * (size_t)s->size);

    for (int r = 0; r < s->size; r++)
        fill(s->k, s->in_place ? out : in, n * (size_t)r, s->rank, r, n);
    MPI_Alltoall(s->in_place ? MPI_IN_PLACE : in, (int)n, s->k->type, out, (int)n, s->k->type,
                 s->comm);
    for (int r = 0; r < s->size; r++)
        look(s->k, "alltoall", out, n * (size_t)r, r, s->rank, n);
    free(in);
    free(out);
}

typedef void part(const struct setting *s, size_t n);

/* Every part on every communicator, kind and count. */
static void everywhere(part *const *parts)
{
    static const size_t counts[] = {0, 1, 17, 9973};

    for (int which = 0; which < COMM_KINDS; which++) {
        struct setting s = {.comm = make_comm(which)};

        MPI_Comm_rank(s.comm, &s.rank);
        MPI_Comm_size(s.comm, &s.size);
        for (int k = 0; k < kind_count; k++)
            for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                if (which != 0 && k % COMM_KINDS != which)
                    continue; /* a sample is enough on the others */
                s.k = &kinds[k];
                s.in_place = (k + (int)i + which) % 2 != 0;
                s.root = (k + (int)i) % s.size;
                for (part *const *p = parts; *p != NULL; p++)
                    (*p)(&s, counts[i]);
            }
        drop_comm(which, s.comm);
    }
}

void moves(void)
{
    static part *const parts[] = {bcast, allgather, gather, scatter, alltoall, NULL};

    everywhere(parts);
}

/* ---- blocks of several sizes ---- */

/* Rank r has n + r elements; places leave gaps, and run backwards when `back`. Returns elements in
 * all. */
static size_t layout(int size, size_t n, bool equal, bool back, int *counts, int *displs)
{
    size_t at =
        size > 1 ? 2 : 0; /* alone and in place, MPICH 4.0.2 itself moves what lies elsewhere */

    for (int i = 0; i < size; i++) {
        int r = back ? size - 1 - i : i;

        counts[r] = (int)n + (equal ? 0 : r);
        displs[r] = (int)at;
        at += (size_t)counts[r] + (back ? 3 : 0);
    }
    return at;
}

static void allgatherv(const struct setting *s, size_t n)
{
    for (int form = 0; form < 4; form++) {
        int counts[64], displs[64];
        size_t all = layout(s->size, n, form & 1, form & 2, counts, displs);
        size_t mine = (size_t)counts[s->rank];
        void *in = room(s->k, mine), *out = room(s->k, all);

        fill(s->k, s->in_place ? out : in, s->in_place ? (size_t)displs[s->rank] : 0, s->rank, -1,
             mine);
        MPI_Allgatherv(s->in_place ? MPI_IN_PLACE : in, (int)mine, s->k->type, out, counts, displs,
                       s->k->type, s->comm);
        for (int r = 0; r < s->size; r++)
            look(s->k, "allgatherv", out, (size_t)displs[r], r, -1, (size_t)counts[r]);
        free(in);
        free(out);
    }
}

static void gatherv(const struct setting *s, size_t n)
{
    int counts[64], displs[64];
    size_t all = layout(s->size, n, false, n % 2, counts, displs), mine = (size_t)counts[s->rank];
    void *in = room(s->k, mine), *out = room(s->k, all);
    bool root = s->rank == s->root, in_place = s->in_place && root;

    fill(s->k, in_place ? out : in, in_place ? (size_t)displs[s->rank] : 0, s->rank, -1, mine);
    MPI_Gatherv(in_place ? MPI_IN_PLACE : in, (int)mine, s->k->type, root ? out : NULL,
                root ? counts : NULL, root ? displs : NULL, root ? s->k->type : MPI_DATATYPE_NULL,
                s->root, s->comm);
    for (int r = 0; r < s->size && root; r++)
        look(s->k, "gatherv", out, (size_t)displs[r], r, -1, (size_t)counts[r]);
    free(in);
    free(out);
}

static void scatterv(const struct setting *s, size_t n)
{
    int counts[64], displs[64];
    size_t all = layout(s->size, n, false, n % 2, counts, displs), mine = (size_t)counts[s->rank];
    void *in = room(s->k, all), *out = room(s->k, mine);
    bool root = s->rank == s->root, in_place = s->in_place && root;

    for (int r = 0; r < s->size && root; r++)
        fill(s->k, in, (size_t)displs[r], s->root, r, (size_t)counts[r]);
    MPI_Scatterv(root ? in : NULL, root ? counts : NULL, root ? displs : NULL,
                 root ? s->k->type : MPI_DATATYPE_NULL, in_place ? MPI_IN_PLACE : out, (int)mine,
                 s->k->type, s->root, s->comm);
    look(s->k, "scatterv", in_place ? in : out, in_place ? (size_t)displs[s->rank] : 0, s->root,
         s->rank, mine);
    free(in);
    free(out);
}

/* Rank a sends n + a + b elements to rank b, or in place as many as it gets from it; none to
 * some. */
static int pair_count(int a, int b, size_t n)
{
    return (a + b) % 3 == 0 ? 0 : (int)n + a + b;
}

static void alltoallv(const struct setting *s, size_t n)
{
    int counts[64], in_displs[64], out_displs[64];
    size_t in_at = 0, out_at = 5;

    for (int r = 0; r < s->size; r++) {
        counts[r] = pair_count(s->rank, r, n);
        in_displs[r] = (int)in_at;
        in_at += (size_t)counts[r] + 1;
    }
    for (int r = s->size - 1; r >= 0; r--) {
        out_displs[r] = (int)out_at;
        out_at += (size_t)counts[r] + 2;
    }
    void *in = room(s->k, in_at), *out = room(s->k, out_at);

    for (int r = 0; r < s->size; r++)
        fill(s->k, s->in_place ? out : in, (size_t)(s->in_place ? out_displs : in_displs)[r],
             s->rank, r, (size_t)counts[r]);
    MPI_Alltoallv(s->in_place ? MPI_IN_PLACE : in, counts, in_displs, s->k->type, out, counts,
                  out_displs, s->k->type, s->comm);
    for (int r = 0; r < s->size; r++)
        look(s->k, "alltoallv", out, (size_t)out_displs[r], r, s->rank, (size_t)counts[r]);
    free(in);
    free(out);
}

/* What is sent and what is received take turns in one array, and places are negative. */
static void interleaved(const struct setting *s, size_t n)
{
    int counts[64], in_displs[64], out_displs[64];

    if (n == 0)
        return; /* then both would begin in one place */
    size_t all = 2 * n * (size_t)s->size;
    char *both = room(s->k, all), *middle = both + all / 2 * (size_t)s->k->size;

    for (int r = 0; r < s->size; r++) {
        counts[r] = (int)n;
        in_displs[r] = 2 * r * (int)n;
        out_displs[r] = (2 * r + 1 - s->size) * (int)n; /* from the middle */
        fill(s->k, both, (size_t)(2 * r) * n, s->rank, r, n);
    }
    MPI_Alltoallv(both, counts, in_displs, s->k->type, middle, counts, out_displs, s->k->type,
                  s->comm);
    for (int r = 0; r < s->size; r++)
        look(s->k, "alltoallv among itself", both, (size_t)(2 * r + 1) * n, r, s->rank, n);
    free(both);
}

void blocks(void)
{
    static part *const parts[] = {allgatherv, gatherv, scatterv, alltoallv, interleaved, NULL};

    everywhere(parts);
}

/* ---- types that are not dense, and differ from rank to rank ---- */

#define N 500

/* Even ranks hold every other long of an array, odd ranks a plain array. */
static MPI_Datatype make_type(bool sparse, int *count)
{
    MPI_Datatype type;

    if (sparse) {
        MPI_Datatype two;

        MPI_Type_vector(2, 1, 2, MPI_LONG, &two);
        MPI_Type_create_resized(two, 0, 4 * sizeof(long), &type);
        MPI_Type_free(&two);
    } else {
        MPI_Type_contiguous(2, MPI_LONG, &type);
    }
    MPI_Type_commit(&type);
    *count = N / 2;
    return type;
}

static void set(long *at, bool sparse, long base)
{
    for (int i = 0; i < N; i++)
        at[sparse ? 2 * i : i] = base + i;
}

static void see(const char *call, const long *at, bool sparse, long base)
{
    for (int i = 0; i < N; i++)
        if (!check(at[sparse ? 2 * i : i] == base + i && (!sparse || at[2 * i + 1] == -1),
                   "%s: element %d is %ld beside %ld, not %ld", call, i, at[sparse ? 2 * i : i],
                   sparse ? at[2 * i + 1] : 0, base + i))
            return;
}

static long *spread(int blocks_of)
{
    long *at = malloc(2 * N * sizeof(long) * (size_t)blocks_of);

    memset(at, 0xff, 2 * N * sizeof(long) * (size_t)blocks_of);
    return at;
}

static void one_mixed(int root)
{
    bool sparse = world_rank % 2 == 0, plain = world_rank % 3 == 0;
    int count, step = sparse ? 2 * N : N, counts[64], displs[64];
    MPI_Datatype type = make_type(sparse, &count);
    long *one = spread(1), *all = spread(world_size), *more = spread(world_size);

    if (world_rank == root)
        set(one, sparse, 7000);
    MPI_Bcast(one, plain && !sparse ? N : count, plain && !sparse ? MPI_LONG : type, root,
              MPI_COMM_WORLD);
    see("bcast", one, sparse, 7000);
    set(one, sparse, 1000 * world_rank);
    MPI_Allgather(one, count, type, all, count, type, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++)
        see("allgather", all + r * step, sparse, 1000 * r);
    MPI_Alltoall(all, count, type, more, count, type, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++)
        see("alltoall", more + r * step, sparse, 1000 * world_rank);
    for (int r = 0; r < world_size; r++) {
        counts[r] = r == 1 ? 0 : count;
        displs[r] = r * count;
    }
    memset(more, 0xff, 2 * N * sizeof(long) * (size_t)world_size);
    MPI_Gatherv(one, counts[world_rank], type, more, counts, displs, type, root, MPI_COMM_WORLD);
    for (int r = 0; r < world_size && world_rank == root; r++)
        if (r != 1)
            see("gatherv", more + r * step, sparse, 1000 * r);
    MPI_Scatterv(all, counts, displs, type, one, counts[world_rank], type, root, MPI_COMM_WORLD);
    see("scatterv", one, sparse, 1000 * world_rank);
    memset(more, 0xff, 2 * N * sizeof(long) * (size_t)world_size);
    MPI_Allgatherv(one, counts[world_rank], type, more, counts, displs, type, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++)
        if (r != 1)
            see("allgatherv", more + r * step, sparse, 1000 * r);
    MPI_Type_free(&type);
    free(one);
    free(all);
    free(more);
}

void mixed_types(void)
{
    for (int round = 0; round < 4; round++)
        one_mixed(round % world_size);
}
