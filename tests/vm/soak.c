/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps collectives running, every result checked, until a file appears: what the fault tests break
 * rails under.
 *
 * usage: soak STOP [SEED [BYTES [REGISTER [GROW]]]]
 *   STOP      the file that ends it; rank 0 looks, all ranks end after the same round
 *   SEED      of the sizes and kinds of operations, the same on all ranks (1)
 *   BYTES     the most that a rank's part of an operation has (262144)
 *   REGISTER  0: plain memory, 1: registered, 2: changes from round to round (2)
 *   GROW      a file; before rank 0 sees it, a part has no more than 1 KiB
 *
 * Prints "round N" after a round, twenty times a second at most, "slow: MS ms for round N" where
 * one took a second, and at its end "longest: MS ms for round N", of all but the first, and "done:
 * N rounds, M operations". Exit status 1: a wrong element. 3: an operation failed; "failed: CODE
 * after MS ms: sentence" tells how.
 */
#include <errno.h>
#include <sluice/sluice.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define EXIT_FAILED 3
#define TOGETHER 3 /* operations in flight at once, at most */
#define POISON 0xa5
#define SHORT 1024 /* bytes, before they grow */
#define TELL_MS 50
#define SLOW_MS 1000

struct soak {
    struct sluice_comm *comm;
    int rank, size;
    const char *stop, *grow; /* grow: NULL, once it has been there */
    uint64_t rng;
    size_t most; /* elements */
    int reg;
    uint64_t rounds, operations;
    double started, told; /* when, in ms */
    double ended;         /* of the last round, when */
    double longest;       /* ms from the end of one round to that of the next */
    uint64_t longest_round;
    struct part {
        uint32_t *in, *out;
        struct sluice_req *req;
        struct sluice_buffer *regions[2];
        unsigned kind, root;
        size_t count;
        uint32_t salt;
    } parts[TOGETHER];
};

enum { ALLREDUCE, ALL_GATHER, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, KINDS };

static const char *const kind_names[KINDS] = {"allreduce", "all_gather", "all_to_all", "broadcast",
                                              "reduce_scatter"};

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

/* splitmix64: the same numbers on all ranks. */
static uint64_t draw(struct soak *s)
{
    uint64_t z = s->rng += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* What rank `from` has for rank `to` at place i. Its sum over ranks is easily told. */
static uint32_t value(const struct part *part, unsigned from, unsigned to, size_t i)
{
    return part->salt + from * 0x01000193u + to * 0x00010007u + (uint32_t)i * 2654435761u;
}

static uint32_t value_summed(const struct part *part, unsigned size, unsigned to, size_t i)
{
    return size * (part->salt + to * 0x00010007u + (uint32_t)i * 2654435761u) +
           size * (size - 1) / 2 * 0x01000193u;
}

/* Elements of in[] and out[], and which rank an element of out[] has come from or is for. */
static size_t in_blocks(const struct soak *s, const struct part *part)
{
    return part->kind == ALL_TO_ALL || part->kind == REDUCE_SCATTER ? (size_t)s->size : 1;
}

static size_t out_blocks(const struct soak *s, const struct part *part)
{
    return part->kind == ALL_TO_ALL || part->kind == ALL_GATHER ? (size_t)s->size : 1;
}

static uint32_t expected(const struct soak *s, const struct part *part, unsigned block, size_t i)
{
    unsigned me = (unsigned)s->rank;

    switch (part->kind) {
    case ALLREDUCE: return value_summed(part, (unsigned)s->size, 0, i);
    case REDUCE_SCATTER: return value_summed(part, (unsigned)s->size, me, i);
    case ALL_GATHER: return value(part, block, 0, i);
    case ALL_TO_ALL: return value(part, block, me, i);
    default: return value(part, part->root, 0, i);
    }
}

static int start(struct soak *s, struct part *part)
{
    int root = (int)part->root;

    switch (part->kind) {
    case ALLREDUCE:
        return sluice_allreduce(s->comm, part->in, part->out, part->count, SLUICE_U32, SLUICE_SUM,
                                &part->req);
    case REDUCE_SCATTER:
        return sluice_reduce_scatter(s->comm, part->in, part->out, part->count, SLUICE_U32,
                                     SLUICE_SUM, &part->req);
    case ALL_GATHER:
        return sluice_all_gather(s->comm, part->in, part->out, part->count, SLUICE_U32, &part->req);
    case ALL_TO_ALL:
        return sluice_all_to_all(s->comm, part->in, part->out, part->count, SLUICE_U32, &part->req);
    default:
        return sluice_broadcast(s->comm, part->in, part->out, part->count, SLUICE_U32, root,
                                &part->req);
    }
}

static int failed(const struct soak *s, int err)
{
    printf("failed: %d after %.0f ms: %s\n", err, now_ms() - s->started, sluice_last_error());
    return EXIT_FAILED;
}

static int prepare(struct soak *s, struct part *part, int reg)
{
    size_t ins, outs;

    part->kind = (unsigned)(draw(s) % KINDS);
    part->root = (unsigned)(draw(s) % (unsigned)s->size);
    part->salt = (uint32_t)draw(s);
    /* As many small ones as long ones, in powers of two. */
    part->count = 1 + draw(s) % (s->grow == NULL ? s->most : SHORT / sizeof(uint32_t));
    part->count >>= draw(s) % 16;
    ins = in_blocks(s, part) * part->count;
    outs = out_blocks(s, part) * part->count;
    for (size_t i = 0; i < ins; i++)
        part->in[i] = value(part, (unsigned)s->rank,
                            part->count == 0 ? 0 : (unsigned)(i / part->count), i % part->count);
    memset(part->out, POISON, outs * sizeof(uint32_t));
    if (!reg)
        return 0;
    for (unsigned i = 0; i < 2; i++) {
        size_t len = (i == 0 ? ins : outs) * sizeof(uint32_t);
        int err = len == 0 ? 0
                           : sluice_register(s->comm, i == 0 ? part->in : part->out, len,
                                             &part->regions[i]);

        if (err != 0 && err != -ENOTSUP)
            return failed(s, err);
    }
    return 0;
}

static void give_up(struct soak *s, struct part *part)
{
    sluice_req_free(part->req);
    part->req = NULL;
    for (unsigned i = 0; i < 2; i++) {
        sluice_deregister(s->comm, part->regions[i]);
        part->regions[i] = NULL;
    }
}

static int check(const struct soak *s, const struct part *part)
{
    size_t blocks = out_blocks(s, part);

    for (size_t b = 0; b < blocks; b++)
        for (size_t i = 0; i < part->count; i++) {
            uint32_t want = expected(s, part, (unsigned)b, i), got = part->out[b * part->count + i];

            if (want == got)
                continue;
            printf("wrong: round %llu, %s of %zu elements: block %zu element %zu is 0x%08x, not "
                   "0x%08x\n",
                   (unsigned long long)s->rounds, kind_names[part->kind], part->count, b, i, got,
                   want);
            return EXIT_WRONG;
        }
    return 0;
}

static int run_round(struct soak *s)
{
    unsigned together = 1 + (unsigned)(draw(s) % TOGETHER);
    int reg = s->reg == 2 ? (int)(draw(s) % 2) : s->reg, status = 0;

    s->started = now_ms();
    for (unsigned i = 0; i < together && status == 0; i++)
        status = prepare(s, &s->parts[i], reg);
    for (unsigned i = 0; i < together && status == 0; i++) {
        int err = start(s, &s->parts[i]);

        if (err != 0)
            status = failed(s, err);
    }
    for (unsigned i = 0; i < together && status == 0; i++) {
        int err = sluice_wait(s->parts[i].req);

        if (err != 0)
            status = failed(s, err);
    }
    for (unsigned i = 0; i < together && status == 0; i++)
        status = check(s, &s->parts[i]);
    for (unsigned i = 0; i < together; i++)
        give_up(s, &s->parts[i]);
    s->operations += together;
    return status;
}

static void tell(struct soak *s)
{
    double now = now_ms(), took = now - (s->rounds > 1 ? s->ended : s->started);

    s->ended = now;
    if (took > s->longest && s->rounds > 1) {
        s->longest = took;
        s->longest_round = s->rounds;
    }
    if (took >= SLOW_MS)
        printf("slow: %.0f ms for round %llu\n", took, (unsigned long long)s->rounds);
    if (now - s->told >= TELL_MS) {
        printf("round %llu\n", (unsigned long long)s->rounds);
        s->told = now;
    }
}

static bool is_there(const char *file)
{
    return file != NULL && access(file, F_OK) == 0;
}

static int run(struct soak *s)
{
    for (;;) {
        uint32_t said[2];
        int status = run_round(s), err;

        if (status != 0)
            return status;
        s->rounds++;
        tell(s);
        said[0] = s->rank == 0 && is_there(s->stop);
        said[1] = s->rank == 0 && is_there(s->grow);
        s->started = now_ms();
        err = sluice_broadcast(s->comm, said, said, 2, SLUICE_U32, 0, NULL);
        if (err != 0)
            return failed(s, err);
        if (said[0] != 0)
            break;
        if (said[1] != 0)
            s->grow = NULL;
    }
    printf("longest: %.0f ms for round %llu\n", s->longest, (unsigned long long)s->longest_round);
    printf("done: %llu rounds, %llu operations\n", (unsigned long long)s->rounds,
           (unsigned long long)s->operations);
    return 0;
}

static int allocate(struct soak *s)
{
    size_t len = s->most * (size_t)s->size * sizeof(uint32_t);

    for (unsigned i = 0; i < TOGETHER; i++) {
        s->parts[i].in = malloc(len);
        s->parts[i].out = malloc(len);
        if (s->parts[i].in == NULL || s->parts[i].out == NULL)
            return EXIT_FAILED;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct soak s = {.rng = 1, .most = 262144 / sizeof(uint32_t), .reg = 2};
    int status;

    if (argc < 2 || argc > 6) {
        fprintf(stderr, "usage: soak STOP [SEED [BYTES [REGISTER [GROW]]]]\n");
        return EXIT_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    s.stop = argv[1];
    if (argc > 2)
        s.rng = strtoull(argv[2], NULL, 0);
    if (argc > 3)
        s.most = strtoull(argv[3], NULL, 0) / sizeof(uint32_t);
    if (argc > 4)
        s.reg = atoi(argv[4]);
    if (argc > 5)
        s.grow = argv[5];
    if (s.most == 0 || (s.grow != NULL && s.most < SHORT / sizeof(uint32_t))) {
        fprintf(stderr, "soak: too few bytes\n");
        return EXIT_USAGE;
    }
    s.started = now_ms();
    int err = sluice_comm_from_env(&s.comm);

    if (err != 0)
        return failed(&s, err);
    s.rank = sluice_comm_rank(s.comm);
    s.size = sluice_comm_size(s.comm);
    status = allocate(&s);
    if (status == 0)
        status = run(&s);
    sluice_comm_destroy(s.comm);
    for (unsigned i = 0; i < TOGETHER; i++) {
        free(s.parts[i].in);
        free(s.parts[i].out);
    }
    return status;
}
