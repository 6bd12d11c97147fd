/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that reduce: every type, operator, form and many counts, on several communicators. */
#include "mpi_check.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int which;
} op_names[] = {{"sum", 0}, {"prod", 1}, {"max", 2}, {"min", 3}};

static MPI_Op op_of(int which)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};

    return ops[which];
}

/* What a rank gives: small enough for sums and products of eight ranks in eight bits. */
static long given(const struct kind *k, int op, int rank, size_t idx)
{
    if (op == 1)
        return rank < 4 ? 1 + (long)((idx + (size_t)rank) % 3) : 1;
    return (long)((idx * 7 + (size_t)rank * 3) % 11) - (k->what == 'u' ? 0 : 5);
}

static long reduced(const struct kind *k, int op, int size, size_t idx)
{
    long all = given(k, op, 0, idx);

    for (int r = 1; r < size; r++) {
        long one = given(k, op, r, idx);

        all = op == 0   ? all + one
              : op == 1 ? all * one
              : op == 2 ? (one > all ? one : all)
                        : (one < all ? one : all);
    }
    return all;
}

struct setting {
    const struct kind *k;
    MPI_Comm comm;
    int op, rank, size, shift; /* shift: bytes that buffers begin after their proper place */
    bool in_place;
};

static void fill(const struct setting *s, void *buf, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(s->k, buf, i, given(s->k, s->op, s->rank, i));
}

static void look(const struct setting *s, const char *call, const void *out, size_t first,
                 size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!check(get(s->k, out, i) == reduced(s->k, s->op, s->size, first + i),
                   "%s of %zu %s, %s%s: element %zu is %ld, not %ld", call, count, s->k->name,
                   op_names[s->op].name, s->in_place ? ", in place" : "", i, get(s->k, out, i),
                   reduced(s->k, s->op, s->size, first + i)))
            return;
}

/* What an in-place call does not write stays as it was given: elements from `first` on. */
static void look_behind(const struct setting *s, const char *call, const void *out, size_t first,
                        size_t count)
{
    for (size_t i = first; s->in_place && i < count; i++)
        if (!check(get(s->k, out, i) == given(s->k, s->op, s->rank, i),
                   "%s of %zu %s, in place: element %zu, which is not of the result, became %ld",
                   call, count, s->k->name, i, get(s->k, out, i)))
            return;
}

static void allreduce(const struct setting *s, size_t count)
{
    char *in = (char *)room(s->k, count) + s->shift, *out = (char *)room(s->k, count) + s->shift;

    fill(s, s->in_place ? out : in, count);
    MPI_Allreduce(s->in_place ? MPI_IN_PLACE : in, out, (int)count, s->k->type, op_of(s->op),
                  s->comm);
    look(s, "allreduce", out, 0, count);
    free(in - s->shift);
    free(out - s->shift);
}

static void reduce(const struct setting *s, size_t count)
{
    char *in = (char *)room(s->k, count) + s->shift, *out = (char *)room(s->k, count) + s->shift;
    int root = (int)(count % (size_t)s->size);
    /* MPICH 4.0.2 itself crashes on long reductions in place at another root than 0. */
    bool in_place = s->in_place && s->rank == root && (root == 0 || count <= 100);

    fill(s, in_place ? out : in, count);
    MPI_Reduce(in_place ? MPI_IN_PLACE : in, s->rank == root ? out : NULL, (int)count, s->k->type,
               op_of(s->op), root, s->comm);
    if (s->rank == root)
        look(s, "reduce", out, 0, count);
    free(in - s->shift);
    free(out - s->shift);
}

static void scatter_block(const struct setting *s, size_t count)
{
    size_t all = count * (size_t)s->size;
    char *in = (char *)room(s->k, all) + s->shift, *out = (char *)room(s->k, all) + s->shift;

    fill(s, s->in_place ? out : in, all);
    MPI_Reduce_scatter_block(s->in_place ? MPI_IN_PLACE : in, out, (int)count, s->k->type,
                             op_of(s->op), s->comm);
    look(s, "reduce_scatter_block", out, (size_t)s->rank * count, count);
    look_behind(s, "reduce_scatter_block", out, count, all);
    free(in - s->shift);
    free(out - s->shift);
}

/* Rank r gets r more elements than count, or all get count. */
static void scatter(const struct setting *s, size_t count, bool equal)
{
    int counts[64];
    size_t all = 0, before = 0;

    for (int r = 0; r < s->size; r++) {
        counts[r] = (int)count + (equal ? 0 : r);
        before += r < s->rank ? (size_t)counts[r] : 0;
        all += (size_t)counts[r];
    }
    char *in = (char *)room(s->k, all) + s->shift, *out = (char *)room(s->k, all) + s->shift;

    fill(s, s->in_place ? out : in, all);
    MPI_Reduce_scatter(s->in_place ? MPI_IN_PLACE : in, out, counts, s->k->type, op_of(s->op),
                       s->comm);
    look(s, "reduce_scatter", out, before, (size_t)counts[s->rank]);
    look_behind(s, "reduce_scatter", out, (size_t)counts[s->rank], all);
    free(in - s->shift);
    free(out - s->shift);
}

static void all_calls(const struct setting *s)
{
    static const size_t counts[] = {0, 1, 17, 9973};

    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        allreduce(s, counts[i]);
        reduce(s, counts[i]);
        scatter_block(s, counts[i] % 1000);
        scatter(s, counts[i] % 1000, i % 2 == 0);
    }
}

/* Products of complex numbers are no products of their parts. Whole numbers, so that they are
 * exact. */
static double complex factor(int rank, size_t idx)
{
    return (double)(1 + (idx + (size_t)rank) % 3) + (double)((idx + 2 * (size_t)rank) % 4) * I;
}

void complex_products(void)
{
    enum { N = 37 };
    double complex in[N * 8] = {0}, out[N * 8], all[N * 8] = {0};
    float complex single[N] = {0}, single_out[N];
    size_t n = (size_t)(world_size < 8 ? world_size : 8) * N;

    for (size_t i = 0; i < n; i++) {
        all[i] = factor(0, i);
        for (int r = 1; r < world_size; r++)
            all[i] *= factor(r, i);
        in[i] = factor(world_rank, i);
        if (i < N)
            single[i] = (float complex)in[i];
    }
    MPI_Allreduce(in, out, (int)n, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
    for (size_t i = 0; i < n; i++)
        if (!check(out[i] == all[i], "product %zu is %g%+gi, not %g%+gi", i, creal(out[i]),
                   cimag(out[i]), creal(all[i]), cimag(all[i])))
            break;
    MPI_Allreduce(single, single_out, N, MPI_C_FLOAT_COMPLEX, MPI_PROD, MPI_COMM_WORLD);
    for (size_t i = 0; i < N; i++)
        if (!check(single_out[i] == (float complex)all[i], "product %zu of floats is wrong", i))
            break;
    MPI_Reduce_scatter_block(in, out, (int)(n / (size_t)world_size), MPI_C_DOUBLE_COMPLEX, MPI_PROD,
                             MPI_COMM_WORLD);
    for (size_t i = 0; i < n / (size_t)world_size; i++)
        if (!check(out[i] == all[(size_t)world_rank * (n / (size_t)world_size) + i],
                   "scattered product %zu is wrong", i))
            break;
    MPI_Reduce(in, out, (int)n, MPI_C_DOUBLE_COMPLEX, MPI_PROD, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < n && world_rank == 0; i++)
        if (!check(out[i] == all[i], "reduced product %zu is wrong", i))
            break;
}

void reductions(void)
{
    for (int which = 0; which < COMM_KINDS; which++) {
        struct setting s = {.comm = make_comm(which)};

        MPI_Comm_rank(s.comm, &s.rank);
        MPI_Comm_size(s.comm, &s.size);
        for (int k = 0; k < kind_count; k++)
            for (s.op = 0; s.op < 4; s.op++) {
                if (kinds[k].what == 'c' && s.op != 0)
                    continue; /* not ordered; products: complex_products() */
                if (which != 0 && (k + s.op) % COMM_KINDS != which)
                    continue; /* a sample is enough on the others */
                s.k = &kinds[k];
                s.in_place = (k + s.op + which) % 2 != 0;
                s.shift = k % 3 == 0 ? 1 : 0;
                all_calls(&s);
            }
        MPI_Barrier(s.comm);
        drop_comm(which, s.comm);
    }
}

void sums_in_any_order(void)
{
    static const int counts[] = {1, 5, 1000, 40000, 300000};

    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        size_t n = (size_t)counts[c];
        double *in = malloc(n * sizeof(*in)), *out = malloc(n * sizeof(*out));

        for (size_t i = 0; i < n; i++)
            in[i] = sin((double)(i + 1) * (world_rank + 1)) * pow(10, (double)(i % 9));
        MPI_Allreduce(in, out, counts[c], MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        check(same_everywhere(MPI_COMM_WORLD, out, n * sizeof(*out)), "sums of %zu differ", n);
        for (size_t i = 0; i < n; i++) {
            double sum = 0, size = 0;

            for (int r = 0; r < world_size; r++) {
                double one = sin((double)(i + 1) * (r + 1)) * pow(10, (double)(i % 9));

                sum += one;
                size += fabs(one);
            }
            /* Each of n-1 additions rounds by half a unit of what was added up at most. */
            if (!check(fabs(out[i] - sum) <= 2.3e-16 * world_size * size,
                       "sum %zu is %.17g, not %.17g", i, out[i], sum))
                break;
        }
        free(in);
        free(out);
    }
}
