/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to train with fewer bytes, and what each must come to: the table that tests and
 * `./dev train` go through, and how one of them makes steps.
 */
#ifndef SL_TESTS_TRAIN_METHODS_H
#define SL_TESTS_TRAIN_METHODS_H

#include "model.h"

#include "compress/train/demo.h"
#include "compress/train/dgc.h"
#include "compress/train/fedzip.h"
#include "compress/train/lion.h"
#include "compress/train/outer.h"
#include "compress/train/sketched.h"

#include <sluice/sluice.h>

#include <stdbool.h>

/* This rank of a training job. */
struct lab {
    struct sluice_comm *comm;
    struct sl_net net;
    uint64_t sent; /* bytes that the functions of net sent from this rank */
};

void lab_make(struct lab *lab, struct sluice_comm *comm);

struct run;

struct kind {
    int (*make)(struct run *run);
    /* Moves run->theta by run->gradient, of this rank's pictures. */
    int (*step)(struct run *run, float rate);
    size_t (*parts)(const struct run *run, struct sl_state_part *parts);
    uint32_t *(*counter)(struct run *run); /* of steps; NULL: it has none */
};

#define PARTS_MOST 12

/* What ./dev test goes through. */
enum quick { QUICK_NONE = 0, QUICK_DIGITS = 1, QUICK_FASHION = 2, QUICK_BOTH = 3 };

/*
 * Bands: a loss of at most so many times fp32's of the same run (0: it is not trained on these
 * pictures), and at most so many per cent of test pictures fewer that are right.
 */
struct method {
    const char *name;
    const struct kind *kind;
    const char *codec; /* or text of the kind's own */
    float rate;        /* times that of fp32 */
    float momentum;    /* of the optimiser, where it is not the kind's own */
    double number;     /* of the kind's own */
    unsigned interval; /* steps between means, of those that go by themselves */
    float digits_loss, digits_points, fashion_loss, fashion_points;
    enum quick quick;
    bool must_fail; /* a control: outside of its band, or the test sees nothing */
    const char *help;
    bool nesterov; /* theta moves by the mean and momentum times the new velocity */
};

const struct method *method_row(size_t idx);

struct run {
    struct lab *lab;
    const struct model *model;
    const struct method *method;
    unsigned steps; /* of the whole run */
    uint32_t step;  /* that is to be made */
    float *theta, *velocity, *gradient, *mean;
    void *memory; /* of the kind */
    struct sluice_operation *operation;
    union {
        struct sl_feedback feedback;
        struct sl_econtrol econtrol;
        struct sl_dgc dgc;
        struct sl_lion lion;
        struct sl_demo demo;
        struct sl_powersgd powersgd;
        struct sl_sketched sketched;
        struct {
            struct sl_outer outer;
            struct sl_feedback feedback;
            struct sl_fedzip fedzip;
            struct sl_powersgd powersgd;
            void *memory;
        } local;
    };
    bool is_local; /* thetas of ranks differ: what is common is the anchor */
    struct sl_codec_spec spec;
};

/* theta is that of all ranks. 1: this build has no such codec. */
int run_make(struct run *run, struct lab *lab, const struct model *model,
             const struct method *method, unsigned steps, const float *theta);
/* run->gradient is there. */
int run_step(struct run *run, float rate);
/* What all ranks have alike, and what is tested in the end. */
const float *run_theta(const struct run *run);
/* Everything that goes on from step to step. *bytes: malloc()ed. */
int run_save(const struct run *run, void **bytes, size_t *len);
int run_load(struct run *run, const void *bytes, size_t len);
void run_drop(struct run *run);

#endif
