/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures to train on: scikit-learn's digits and Fashion-MNIST, as Debian's packages have them. */
#ifndef SL_TESTS_TRAIN_DATA_H
#define SL_TESTS_TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

struct set {
    float *pixels; /* count pictures of inputs pixels from 0 to 1 */
    uint8_t *labels;
    size_t count;
};

struct data {
    const char *name;
    unsigned inputs, classes;
    struct set train, test;
};

/* name: "digits" or "fashion"; train: pictures at most; root: a folder under which
 * packages are unpacked, if they are not installed. Returns NULL, or in one sentence why there are
 * none. */
const char *data_load(const char *name, const char *root, size_t train, struct data *out);
void data_free(struct data *data);

#endif
