/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of codecs share: inputs of all kinds, and the check that all paths give the same
 * bytes. */
#ifndef SL_TESTS_CODEC_PATHS_H
#define SL_TESTS_CODEC_PATHS_H

#include "compress/codec.h"

/* Kinds of input, from 0 to INPUT_KINDS - 1: random bits, normal, equal, zeros, of NaN and
 * infinities, denormal, near the largest, one outlier, halves of steps, of all magnitudes. */
#define INPUT_KINDS 10

uint32_t test_random(void);

/* About normal, variance 1. */
float test_normal(void);

/* count elements of kind, as floats. */
void test_input(unsigned kind, size_t count, float *out);

/* Names of the kernels that this CPU runs; NULL behind the last. The first is "c". */
extern const char *const test_paths[];
/* False: not on this CPU. */
bool test_path_set(const char *path);

/* Encodes and decodes by all paths, each input kind, many counts, each type of elements, unaligned:
 * all as plain C does, and no byte behind the end is touched. text: "bq8:stochastic=on". */
void test_paths_agree(const char *text);

/* The same for one message that is stored past the caches. */
void test_paths_agree_at(const char *text, size_t count);

#endif
