/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four processes train a perceptron on real pictures, by each method in turn, over Sluice. All
 * ranks compare a digest of their parameters after every step; some runs are stopped half-way,
 * saved, loaded and run again from there.
 *
 * usage: train [--data digits|fashion] [--method NAME]... [--quick] [--json FILE] [--root FOLDER]
 *              [--seed N] [--ranks N] [--kernels c|avx2|avx512]
 * With --kernels each method is trained again by those kernels of the codecs. Output is TAP. Exit
 * code 1: a method is out of its band, ranks differ, or a run that was loaded or by other kernels
 * ends elsewhere.
 */
#include "methods.h"

#include "compress/kernels.h"
#include "compress/philox.h"
#include "core/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define METHODS_MOST 64
#define RATE 0.1

struct options {
    const char *data, *json, *root, *kernels;
    const char *methods[METHODS_MOST];
    unsigned method_count;
    int ranks;
    bool quick;
    uint64_t seed;
};

/* All there is for a run, but for the method. */
struct job {
    const struct options *options;
    struct data data;
    struct model model;
    struct lab lab;
    unsigned batch, epochs, per_epoch, steps;
    uint32_t *order; /* of pictures, of the epoch under way */
    unsigned epoch;  /* that order is of, + 1 */
    float *start;
};

struct result {
    double loss, right, seconds;
    double ratio; /* bytes of fp32 for a byte */
};

/* ---- steps ---- */

/* The same order on all ranks, whatever step a run begins with. */
static void shuffle(struct job *job, unsigned epoch)
{
    size_t count = job->data.train.count;

    if (job->epoch == epoch + 1)
        return;
    for (size_t i = 0; i < count; i++)
        job->order[i] = (uint32_t)i;
    for (size_t i = count - 1; i > 0; i--) {
        const uint32_t counter[4] = {(uint32_t)i, epoch, 0, 0};
        uint32_t words[4], other, kept = job->order[i];

        sl_philox(counter, job->options->seed, words);
        other = (uint32_t)((uint64_t)words[0] * (i + 1) >> 32);
        job->order[i] = job->order[other];
        job->order[other] = kept;
    }
    job->epoch = epoch + 1;
}

static uint64_t digest_of(const float *x, size_t count)
{
    uint64_t hash = 0x9e3779b97f4a7c15;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        hash = (hash ^ bits) * 0xff51afd7ed558ccd;
        hash ^= hash >> 32;
    }
    return hash;
}

/* 0: all ranks have the same bits; 1: they have not. */
static int same_on_all(struct job *job, const float *theta, uint64_t *digest)
{
    uint64_t all[64];
    int err;

    *digest = digest_of(theta, job->model.count);
    err = sluice_all_gather(job->lab.comm, digest, all, 1, SLUICE_U64, NULL);
    for (uint32_t w = 0; err == 0 && w < job->lab.net.ranks; w++)
        err = all[w] != *digest;
    return err;
}

static int go(struct job *job, struct run *run, unsigned until, uint64_t *digest)
{
    int err = 0;

    while (err == 0 && run->step < until) {
        unsigned epoch = run->step / job->per_epoch, at = run->step % job->per_epoch;
        double rate = RATE * (double)run->method->rate / 2 *
                      (1 + cos(3.14159265358979 * run->step / job->steps));
        size_t first = ((size_t)at * job->lab.net.ranks + job->lab.net.rank) * job->batch;

        shuffle(job, epoch);
        model_gradient(&job->model, run->theta, &job->data.train, job->order + first, job->batch,
                       run->gradient);
        err = run_step(run, (float)rate);
        if (err == 0)
            err = same_on_all(job, run_theta(run), digest);
        if (err == 1)
            fprintf(stderr, "rank %u: step %u of %s: parameters differ between ranks\n",
                    job->lab.net.rank, run->step, run->method->name);
    }
    return err;
}

/* Loss on the pictures trained on, and the part of the others that is right; a share a rank. */
static int test(struct job *job, const float *theta, struct result *out)
{
    const struct set *sets[2] = {&job->data.train, &job->data.test};
    double sums[4];
    uint32_t ranks = job->lab.net.ranks, rank = job->lab.net.rank;
    int err;

    for (unsigned i = 0; i < 2; i++) {
        size_t first = sets[i]->count * rank / ranks, end = sets[i]->count * (rank + 1) / ranks;

        model_test(&job->model, theta, sets[i], first, end - first, &sums[2 * i], &sums[2 * i + 1]);
    }
    err = sluice_allreduce(job->lab.comm, sums, sums, 4, SLUICE_F64, SLUICE_SUM, NULL);
    out->loss = sums[0] / (double)sets[0]->count;
    out->right = 100 * sums[3] / (double)sets[1]->count;
    return err;
}

/* From what was saved half-way, or from the start (NULL), to the end: the same bits as before. */
static int again(struct job *job, const struct method *method, const void *bytes, size_t len,
                 uint64_t expected)
{
    uint64_t digest = 0;
    struct run run;
    int err = run_make(&run, &job->lab, &job->model, method, job->steps, job->start);

    if (err == 0 && bytes != NULL)
        err = run_load(&run, bytes, len);
    if (err == 0)
        err = go(job, &run, job->steps, &digest);
    if (err == 0 && digest != expected) {
        fprintf(stderr, "rank %u: %s ends elsewhere when it is %s\n", job->lab.net.rank,
                method->name, bytes != NULL ? "loaded half-way" : "run again");
        err = 2;
    }
    run_drop(&run);
    return err;
}

/* The whole run again by the codecs' kernels of that name. */
static int by_kernels(struct job *job, const struct method *method, uint64_t expected)
{
    int err = sl_codec_kernels_force(job->options->kernels);

    if (err == 0)
        err = again(job, method, NULL, 0, expected);
    sl_codec_kernels_force(NULL);
    return err == 2 ? 4 : err;
}

/* 0, a negative errno, 1: ranks differ, 2: loading changed something, 3: no such codec here, 4:
 * other kernels did. */
static int train(struct job *job, const struct method *method, bool stop, struct result *out)
{
    double raw = 2.0 * (job->lab.net.ranks - 1) / job->lab.net.ranks * 4;
    uint64_t digest = 0, sent;
    struct timespec start, end;
    struct run run;
    void *bytes = NULL;
    size_t len = 0;
    int err = run_make(&run, &job->lab, &job->model, method, job->steps, job->start);

    if (err == 1) {
        run_drop(&run);
        return 3;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    sent = job->lab.sent;
    if (err == 0)
        err = go(job, &run, stop ? job->steps / 2 + 3 : job->steps, &digest);
    if (err == 0 && stop)
        err = run_save(&run, &bytes, &len);
    if (err == 0 && stop)
        err = go(job, &run, job->steps, &digest);
    clock_gettime(CLOCK_MONOTONIC, &end);
    out->seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    sent = job->lab.sent - sent;
    out->ratio = sent > 0 ? raw * (double)job->model.count * job->steps / (double)sent : 0;
    if (err == 0)
        err = test(job, run_theta(&run), out);
    run_drop(&run);
    if (err == 0 && stop)
        err = again(job, method, bytes, len, digest);
    if (err == 0 && job->options->kernels != NULL)
        err = by_kernels(job, method, digest);
    free(bytes);
    return err;
}

/* ---- results ---- */

struct band {
    double loss, points;
    bool quick;
};

static struct band band_of(const struct job *job, const struct method *m)
{
    if (job->data.inputs == 64)
        return (struct band){(double)m->digits_loss, (double)m->digits_points,
                             (m->quick & QUICK_DIGITS) != 0};
    return (struct band){(double)m->fashion_loss, (double)m->fashion_points,
                         (m->quick & QUICK_FASHION) != 0};
}

/* Not a number is in no band. */
static bool in_band(struct band band, const struct result *r, const struct result *fp32)
{
    return r->loss <= band.loss * fp32->loss && r->right >= fp32->right - band.points - 1e-9;
}

static void say(FILE *json, const struct job *job, const struct method *method,
                const struct result *r, const struct result *fp32, unsigned number, int err)
{
    static const char *const whys[] = {"", "parameters differ between ranks",
                                       "loading it half-way changes the end", "",
                                       "other kernels of the codecs end elsewhere"};
    bool good = in_band(band_of(job, method), r, fp32) != method->must_fail;

    if (err == 3) {
        printf("ok %u - %s: %s # SKIP this build has no such codec\n", number, job->data.name,
               method->name);
        return;
    }
    if (err != 0) {
        printf("not ok %u - %s: %s\n# %s\n", number, job->data.name, method->name,
               err > 0 ? whys[err] : sluice_last_error());
        return;
    }
    printf("%s %u - %s: %s %s%s%s\n", good ? "ok" : "not ok", number, job->data.name, method->name,
           method->must_fail ? "fails, as it must" : "stays in its band",
           job->options->kernels != NULL ? ", with the same bits by " : "",
           job->options->kernels != NULL ? job->options->kernels : "");
    printf("# loss %.4f (fp32 %.4f), %.2f %% right (%.2f), %.1f times fewer bytes, %.1f s\n",
           r->loss, fp32->loss, r->right, fp32->right, r->ratio, r->seconds);
    if (json != NULL)
        fprintf(json,
                "{\"data\": \"%s\", \"method\": \"%s\", \"help\": \"%s\", \"loss\": %.5f, "
                "\"right\": %.2f, \"ratio\": %.2f, \"seconds\": %.2f, \"control\": %s, \"good\": "
                "%s}\n",
                job->data.name, method->name, method->help, r->loss == r->loss ? r->loss : 1e30,
                r->right, r->ratio, r->seconds, method->must_fail ? "true" : "false",
                good ? "true" : "false");
    fflush(stdout);
}

static bool wanted(const struct job *job, const struct method *method, unsigned idx)
{
    const struct options *o = job->options;
    struct band band = band_of(job, method);

    if (idx == 0)
        return true; /* what all others are held against */
    for (unsigned i = 0; i < o->method_count; i++)
        if (strcmp(o->methods[i], method->name) == 0)
            return true;
    if (o->method_count > 0 || band.loss == 0)
        return false;
    return !o->quick || band.quick;
}

/* Returns 0, or 1 where something is not as it should be. */
static int all_methods(struct job *job)
{
    FILE *json = NULL;
    struct result fp32 = {0};
    unsigned number = 0;
    int bad = 0;

    if (job->lab.net.rank == 0 && job->options->json != NULL)
        json = fopen(job->options->json, "a");
    for (unsigned i = 0; method_row(i) != NULL; i++) {
        const struct method *method = method_row(i);
        struct result r = {0};
        int err;

        if (!wanted(job, method, i))
            continue;
        /* On the larger set, one with residuals on both sides is enough. */
        err = train(job, method,
                    job->options->kernels == NULL &&
                        (job->data.inputs == 64 || strcmp(method->name, "bq4, feedback") == 0),
                    &r);
        if (i == 0)
            fp32 = r;
        number++;
        if (job->lab.net.rank == 0)
            say(json, job, method, &r, &fp32, number, err);
        bad |= err != 0 && err != 3;
        if (err < 0)
            break; /* the communicator is broken */
    }
    if (job->lab.net.rank == 0)
        printf("1..%u\n", number);
    if (json != NULL)
        fclose(json);
    return bad;
}

/* ---- ranks ---- */

static int job_make(struct job *job)
{
    bool digits = job->data.inputs == 64;

    model_make(&job->model, job->data.inputs, digits ? 128 : 256, job->data.classes);
    job->batch = digits ? 32 : 64;
    job->epochs = digits ? 40 : 4;
    job->per_epoch = (unsigned)(job->data.train.count / job->batch / (unsigned)job->options->ranks);
    job->steps = job->per_epoch * job->epochs;
    job->order = malloc(job->data.train.count * sizeof(*job->order));
    job->start = malloc(job->model.count * sizeof(*job->start));
    if (job->order == NULL || job->start == NULL)
        return -1;
    model_init(&job->model, job->options->seed, job->start);
    return 0;
}

static int rank_main(struct job *job, const struct sluice_unique_id *id, int rank)
{
    struct sluice_comm *comm;
    int bad;

    if (sluice_comm_create_id(id, rank, job->options->ranks, NULL, &comm) != 0) {
        fprintf(stderr, "rank %d: %s\n", rank, sluice_last_error());
        return 1;
    }
    lab_make(&job->lab, comm);
    bad = all_methods(job);
    sluice_comm_destroy(comm);
    return bad;
}

/* Names all there are if one of those asked for is none. */
static bool knows_methods(const struct options *o)
{
    for (unsigned i = 0; i < o->method_count; i++) {
        unsigned row = 0;

        while (method_row(row) != NULL && strcmp(method_row(row)->name, o->methods[i]) != 0)
            row++;
        if (method_row(row) != NULL)
            continue;
        fprintf(stderr, "there is no method '%s', but: %s", o->methods[i], method_row(0)->name);
        for (row = 1; method_row(row) != NULL; row++)
            fprintf(stderr, "; %s", method_row(row)->name);
        fprintf(stderr, "\n");
        return false;
    }
    return true;
}

static int parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.data = "digits", .root = "", .ranks = 4, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--quick") == 0) {
            o->quick = true;
            continue;
        }
        if (value == NULL)
            return -1;
        if (strcmp(argv[i], "--data") == 0)
            o->data = value;
        else if (strcmp(argv[i], "--json") == 0)
            o->json = value;
        else if (strcmp(argv[i], "--root") == 0)
            o->root = value;
        else if (strcmp(argv[i], "--kernels") == 0)
            o->kernels = value;
        else if (strcmp(argv[i], "--ranks") == 0)
            o->ranks = atoi(value);
        else if (strcmp(argv[i], "--seed") == 0)
            o->seed = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--method") == 0 && o->method_count < METHODS_MOST)
            o->methods[o->method_count++] = value;
        else
            return -1;
        i++;
    }
    return o->ranks >= 1 && o->ranks <= 64 ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct sluice_unique_id id;
    struct options options;
    struct job job = {.options = &options};
    pid_t pids[64];
    const char *why;
    int bad;

    if (parse(argc, argv, &options) != 0) {
        fprintf(stderr, "usage: train [--data digits|fashion] [--method NAME]... [--quick] "
                        "[--json FILE] [--root FOLDER] [--seed N] [--ranks N] [--kernels NAME]\n");
        return 2;
    }
    if (!knows_methods(&options))
        return 2;
    why = data_load(options.data, options.root, options.quick ? 10000 : 20000, &job.data);
    if (why != NULL) {
        printf("1..1\nok 1 - training on %s # SKIP %s\n", options.data, why);
        return 0;
    }
    if (job_make(&job) != 0 || sluice_unique_id_create(&id) != 0) {
        fprintf(stderr, "cannot start: %s\n", sluice_last_error());
        return 1;
    }
    fflush(stdout);
    for (int rank = 1; rank < options.ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            _exit(rank_main(&job, &id, rank));
    }
    bad = rank_main(&job, &id, 0);
    for (int rank = 1; rank < options.ranks; rank++) {
        int status = 1;

        if (pids[rank] < 0 || waitpid(pids[rank], &status, 0) < 0 || status != 0)
            bad = 1;
    }
    data_free(&job.data);
    free(job.order);
    free(job.start);
    return bad;
}
