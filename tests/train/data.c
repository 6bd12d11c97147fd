/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures from files of Debian's packages, by way of gzip(1). */
#include "data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGITS "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
#define FASHION "/usr/share/datasets/fashion-mnist"

static const char *unpack(const char *root, const char *path, FILE **out)
{
    static char why[600];
    char file[400], command[500];

    snprintf(file, sizeof(file), "%s", path);
    if (access(file, R_OK) != 0)
        snprintf(file, sizeof(file), "%s%s", root, path);
    snprintf(command, sizeof(command), "gzip -dc '%s'", file);
    if (access(file, R_OK) != 0) {
        snprintf(why, sizeof(why), "there is no %s", path);
        return why;
    }
    *out = popen(command, "r");
    return *out != NULL ? NULL : "gzip cannot be run";
}

static void set_make(struct set *set, size_t count, unsigned inputs)
{
    set->count = count;
    set->pixels = malloc(count * inputs * sizeof(float));
    set->labels = malloc(count);
    if (set->pixels == NULL || set->labels == NULL)
        abort();
}

/* A line a picture: 64 numbers from 0 to 16, and the digit. Every fifth one is for the test. */
static const char *digits(const char *root, struct data *out)
{
    size_t test = 0, train = 0;
    FILE *file;
    const char *why = unpack(root, DIGITS, &file);

    if (why != NULL)
        return why;
    out->inputs = 64;
    out->classes = 10;
    set_make(&out->train, 1437, 64);
    set_make(&out->test, 360, 64);
    for (size_t line = 0; line < 1797 && why == NULL; line++) {
        bool is_test = line % 5 == 4 || line == 1796;
        struct set *set = is_test ? &out->test : &out->train;
        size_t at = is_test ? test++ : train++;
        float number;

        for (unsigned i = 0; i < 65 && why == NULL; i++) {
            if (at >= set->count || fscanf(file, "%f%*[,]", &number) < 1)
                why = "the digits are no 1797 lines of 65 numbers";
            else if (i < 64)
                set->pixels[at * 64 + i] = number / 16;
            else
                set->labels[at] = (uint8_t)number;
        }
    }
    pclose(file);
    return why;
}

static uint32_t big_endian(FILE *file)
{
    uint32_t x = 0;

    for (unsigned i = 0; i < 4; i++)
        x = x << 8 | (uint32_t)(fgetc(file) & 0xff);
    return x;
}

static const char *idx(const char *root, const char *kind, size_t most, struct set *set)
{
    char path[200];
    uint8_t picture[784];
    FILE *file;
    const char *why;

    snprintf(path, sizeof(path), FASHION "/%s-images-idx3-ubyte.gz", kind);
    why = unpack(root, path, &file);
    if (why != NULL)
        return why;
    set_make(set, most, 784);
    if (big_endian(file) != 0x803 || big_endian(file) < most || big_endian(file) != 28 ||
        big_endian(file) != 28)
        why = "the pictures of Fashion-MNIST have another form";
    for (size_t i = 0; why == NULL && i < most; i++) {
        if (fread(picture, sizeof(picture), 1, file) != 1)
            why = "the pictures of Fashion-MNIST end early";
        for (unsigned j = 0; j < 784; j++)
            set->pixels[i * 784 + j] = (float)picture[j] / 255;
    }
    pclose(file);
    if (why != NULL)
        return why;
    snprintf(path, sizeof(path), FASHION "/%s-labels-idx1-ubyte.gz", kind);
    why = unpack(root, path, &file);
    if (why != NULL)
        return why;
    if (big_endian(file) != 0x801 || big_endian(file) < most ||
        fread(set->labels, 1, most, file) != most)
        why = "the labels of Fashion-MNIST have another form";
    pclose(file);
    return why;
}

const char *data_load(const char *name, const char *root, size_t train, struct data *out)
{
    const char *why;

    *out = (struct data){.name = name};
    if (strcmp(name, "digits") == 0)
        return digits(root, out);
    out->inputs = 784;
    out->classes = 10;
    why = idx(root, "train", train, &out->train);
    return why != NULL ? why : idx(root, "t10k", 10000, &out->test);
}

void data_free(struct data *data)
{
    free(data->train.pixels);
    free(data->train.labels);
    free(data->test.pixels);
    free(data->test.labels);
}
