/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perceptron with one hidden layer, softmax and cross entropy, in plain C: parameters and
 * gradients as one array (weights by inputs, biases, weights by hidden ones, biases). No sum
 * depends on how wide a vector is, so the same steps give the same bits on every CPU of one libm.
 */
#ifndef SL_TESTS_TRAIN_MODEL_H
#define SL_TESTS_TRAIN_MODEL_H

#include "compress/train/powersgd.h"
#include "data.h"

#define MODEL_LAYERS 4

struct model {
    unsigned inputs, hidden, classes;
    size_t count; /* parameters */
    struct sl_layer layers[MODEL_LAYERS];
    size_t layer_counts[MODEL_LAYERS];
};

void model_make(struct model *model, unsigned inputs, unsigned hidden, unsigned classes);
void model_init(const struct model *model, uint64_t seed, float *theta);

/* gradient = that of the mean loss of these pictures. Returns the mean loss. */
double model_gradient(const struct model *model, const float *theta, const struct set *set,
                      const uint32_t *pictures, size_t count, float *gradient);

/* Of pictures first to first + count - 1: the sum of losses and how many are right. */
void model_test(const struct model *model, const float *theta, const struct set *set, size_t first,
                size_t count, double *loss, double *right);

#endif
