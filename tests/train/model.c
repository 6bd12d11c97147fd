/* SPDX-License-Identifier: Apache-2.0 */
/* A perceptron with one hidden layer. Four pictures at a time share each row of weights; pixels and
 * hidden ones that are 0, half of them, are passed over. */
#include "model.h"

#include "compress/philox.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define GROUP 4
#define HIDDEN_MOST 256
#define CLASSES_MOST 10

/* Where the parts of theta and of a gradient begin. */
struct parts {
    size_t b1, w2, b2;
};

static struct parts parts_of(const struct model *m)
{
    size_t b1 = (size_t)m->inputs * m->hidden, w2 = b1 + m->hidden;

    return (struct parts){b1, w2, w2 + (size_t)m->hidden * m->classes};
}

/* What a group of pictures has on its way. */
struct group {
    const float *x[GROUP];
    uint8_t label[GROUP];
    unsigned count;
    float h[GROUP][HIDDEN_MOST], out[GROUP][CLASSES_MOST], back[GROUP][HIDDEN_MOST];
};

void model_make(struct model *m, unsigned inputs, unsigned hidden, unsigned classes)
{
    *m = (struct model){.inputs = inputs,
                        .hidden = hidden,
                        .classes = classes,
                        .layers = {{inputs, hidden}, {1, hidden}, {hidden, classes}, {1, classes}}};
    for (unsigned i = 0; i < MODEL_LAYERS; i++) {
        m->layer_counts[i] = m->layers[i].rows * m->layers[i].columns;
        m->count += m->layer_counts[i];
    }
}

void model_init(const struct model *m, uint64_t seed, float *theta)
{
    size_t first = 0;

    memset(theta, 0, m->count * sizeof(*theta));
    for (unsigned l = 0; l < MODEL_LAYERS; first += m->layer_counts[l++]) {
        float most = sqrtf(6 / (float)m->layers[l].rows);

        for (size_t i = 0; m->layers[l].rows > 1 && i < m->layer_counts[l]; i++)
            theta[first + i] = most * ((float)sl_philox_16(i, l, 0, seed) / 32768 - 1);
    }
}

static inline void add(float *restrict to, float by, const float *restrict from, unsigned n)
{
    for (unsigned j = 0; j < n; j++)
        to[j] += by * from[j];
}

static void forward(const struct model *m, const float *theta, struct group *g)
{
    struct parts at = parts_of(m);

    for (unsigned s = 0; s < g->count; s++) {
        memcpy(g->h[s], theta + at.b1, m->hidden * sizeof(float));
        memcpy(g->out[s], theta + at.b2, m->classes * sizeof(float));
    }
    for (unsigned i = 0; i < m->inputs; i++)
        for (unsigned s = 0; s < g->count; s++)
            if (g->x[s][i] != 0)
                add(g->h[s], g->x[s][i], theta + (size_t)i * m->hidden, m->hidden);
    for (unsigned s = 0; s < g->count; s++)
        for (unsigned i = 0; i < m->hidden; i++) {
            g->h[s][i] = g->h[s][i] > 0 ? g->h[s][i] : 0;
            if (g->h[s][i] != 0)
                add(g->out[s], g->h[s][i], theta + at.w2 + (size_t)i * m->classes, m->classes);
        }
}

/* g->out becomes probabilities. Returns the sum of losses. */
static double losses(const struct model *m, struct group *g, double *right)
{
    double loss = 0;

    for (unsigned s = 0; s < g->count; s++) {
        float *out = g->out[s], most = out[0], sum = 0;
        unsigned best = 0;

        for (unsigned c = 1; c < m->classes; c++)
            if (out[c] > most) {
                most = out[c];
                best = c;
            }
        for (unsigned c = 0; c < m->classes; c++)
            sum += out[c] = expf(out[c] - most);
        for (unsigned c = 0; c < m->classes; c++)
            out[c] /= sum;
        loss -= log((double)out[g->label[s]] + 1e-30);
        *right += best == g->label[s];
    }
    return loss;
}

static void backward(const struct model *m, const float *theta, struct group *g, float by,
                     float *gradient)
{
    struct parts at = parts_of(m);

    for (unsigned s = 0; s < g->count; s++) {
        float *out = g->out[s];

        out[g->label[s]] -= 1;
        for (unsigned c = 0; c < m->classes; c++)
            out[c] *= by;
        add(gradient + at.b2, 1, out, m->classes);
        for (unsigned i = 0; i < m->hidden; i++) {
            const float *w = theta + at.w2 + (size_t)i * m->classes;
            float sum = 0;

            for (unsigned c = 0; c < m->classes; c++)
                sum += w[c] * out[c];
            g->back[s][i] = g->h[s][i] > 0 ? sum : 0;
            if (g->h[s][i] > 0)
                add(gradient + at.w2 + (size_t)i * m->classes, g->h[s][i], out, m->classes);
        }
        add(gradient + at.b1, 1, g->back[s], m->hidden);
    }
    for (unsigned i = 0; i < m->inputs; i++)
        for (unsigned s = 0; s < g->count; s++)
            if (g->x[s][i] != 0)
                add(gradient + (size_t)i * m->hidden, g->x[s][i], g->back[s], m->hidden);
}

static void pick(const struct model *m, const struct set *set, size_t picture, struct group *g)
{
    g->x[g->count] = set->pixels + picture * m->inputs;
    g->label[g->count++] = set->labels[picture];
}

double model_gradient(const struct model *m, const float *theta, const struct set *set,
                      const uint32_t *pictures, size_t count, float *gradient)
{
    double loss = 0, right = 0;
    struct group g;

    memset(gradient, 0, m->count * sizeof(*gradient));
    for (size_t first = 0; first < count; first += GROUP) {
        g.count = 0;
        for (size_t i = first; i < count && i < first + GROUP; i++)
            pick(m, set, pictures[i], &g);
        forward(m, theta, &g);
        loss += losses(m, &g, &right);
        backward(m, theta, &g, 1 / (float)count, gradient);
    }
    return loss / (double)count;
}

void model_test(const struct model *m, const float *theta, const struct set *set, size_t first,
                size_t count, double *loss, double *right)
{
    struct group g;

    *loss = *right = 0;
    for (size_t i = first; i < first + count;) {
        for (g.count = 0; g.count < GROUP && i < first + count; i++)
            pick(m, set, i, &g);
        forward(m, theta, &g);
        *loss += losses(m, &g, right);
    }
}
