/* SPDX-License-Identifier: Apache-2.0 */
/* The set of inputs of a case. */
#include "core/err.h"
#include "monitor/cases/case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_inputs *sl_inputs_new(void)
{
    return calloc(1, sizeof(struct sl_inputs));
}

void sl_inputs_free(struct sl_inputs *inputs)
{
    if (inputs == NULL)
        return;
    for (size_t i = 0; i < inputs->count; i++) {
        free(inputs->list[i].name);
        free(inputs->list[i].bytes);
    }
    free(inputs->list);
    free(inputs);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "_dump_2" is before "_dump_10". */
static int by_name(const char *a, const char *b)
{
    const char *whole_a = a, *whole_b = b;

    while (*a != '\0' && *b != '\0') {
        size_t m, n;
        int order;

        if (!is_digit(*a) || !is_digit(*b)) {
            if (*a != *b)
                return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++;
            b++;
            continue;
        }
        a += strspn(a, "0");
        b += strspn(b, "0");
        m = strspn(a, "0123456789");
        n = strspn(b, "0123456789");
        order = m != n ? (m < n ? -1 : 1) : memcmp(a, b, m);
        if (order != 0)
            return order;
        a += m;
        b += n;
    }
    if (*a != *b)
        return *a == '\0' ? -1 : 1;
    return strcmp(whole_a, whole_b);
}

int sl_input_order(const char *name_a, const char *sum_a, const char *name_b, const char *sum_b)
{
    int order = by_name(name_a, name_b);

    return order != 0 ? order : strcmp(sum_a, sum_b);
}

/* Where it is (true), or would stand. */
static bool find(const struct sl_inputs *inputs, const char *name, const char *sum, size_t *at)
{
    size_t low = 0, high = inputs->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct sl_input *it = &inputs->list[middle];
        int order = sl_input_order(it->name, it->sum, name, sum);

        if (order == 0) {
            *at = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return false;
}

static int check_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len > SL_CASE_NAME_MAX)
        return sl_fail(-EINVAL, "the name of an input is to have 1 to %d bytes", SL_CASE_NAME_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f || name[i] == '/')
            return sl_fail(-EINVAL, "the name of an input has a control character: rename it");
    return 0;
}

/* Takes bytes, also where it fails. */
static int put(struct sl_inputs *inputs, const char *name, char *bytes, size_t len)
{
    struct sl_digest digest;
    struct sl_input it = {.bytes = bytes, .len = len};
    size_t at;
    int err;

    name = strrchr(name, '/') != NULL ? strrchr(name, '/') + 1 : name;
    err = check_name(name);
    if (err == 0 && len > SL_CASE_BYTES_MAX - inputs->bytes)
        err = sl_fail(-EFBIG, "%s: the inputs of a bundle have more than %zu bytes", name,
                      SL_CASE_BYTES_MAX);
    if (err != 0)
        goto err_bytes;
    sl_digest_begin(&digest);
    sl_digest_add(&digest, bytes, len);
    sl_digest_end(&digest, it.sum);
    if (find(inputs, name, it.sum, &at))
        goto err_bytes;
    if (inputs->count == inputs->cap) {
        size_t cap = inputs->cap == 0 ? 16 : inputs->cap * 2;
        struct sl_input *list = reallocarray(inputs->list, cap, sizeof(*list));

        if (list == NULL)
            goto err_memory;
        inputs->list = list;
        inputs->cap = cap;
    }
    it.name = strdup(name);
    if (it.name == NULL)
        goto err_memory;
    memmove(&inputs->list[at + 1], &inputs->list[at], (inputs->count - at) * sizeof(it));
    inputs->list[at] = it;
    inputs->count++;
    inputs->bytes += len;
    return 0;
err_memory:
    err = sl_fail(-ENOMEM, "no memory for an input of %zu bytes", len);
err_bytes:
    free(bytes);
    return err;
}

int sl_inputs_add(struct sl_inputs *inputs, const char *name, const void *bytes, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy == NULL)
        return sl_fail(-ENOMEM, "no memory for an input of %zu bytes", len);
    if (len > 0)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return put(inputs, name, copy, len);
}

/* All of a file, which may be a pipe; ended by 0. */
static int slurp(const char *path, size_t most, char **out, size_t *out_len)
{
    FILE *file = fopen(path, "re");
    size_t cap = (size_t)64 << 10, len = 0;
    char *bytes = NULL, *more;
    int err = 0;

    if (file == NULL)
        return sl_fail(-errno, "%s cannot be opened: %s", path, sluice_strerror(-errno));
    while (err == 0) {
        more = realloc(bytes, cap);
        if (more == NULL) {
            err = sl_fail(-ENOMEM, "no memory for %s", path);
            break;
        }
        bytes = more;
        len += fread(bytes + len, 1, cap - 1 - len, file);
        if (ferror(file))
            err = sl_fail(-EIO, "%s cannot be read", path);
        else if (len > most)
            err = sl_fail(-EFBIG, "%s has more than %zu bytes", path, most);
        else if (len < cap - 1)
            break;
        cap *= 2;
    }
    fclose(file);
    if (err != 0) {
        free(bytes);
        return err;
    }
    bytes[len] = '\0';
    *out = bytes;
    *out_len = len;
    return 0;
}

int sl_inputs_add_file(struct sl_inputs *inputs, const char *path)
{
    char *bytes;
    size_t len;
    int err = slurp(path, SL_CASE_BYTES_MAX, &bytes, &len);

    return err == 0 ? put(inputs, path, bytes, len) : err;
}

int sl_case_read(const char *path, struct sl_case *out)
{
    char *bytes;
    size_t len;
    int err = slurp(path, SL_CASE_BYTES_MAX + SL_CASE_BYTES_MAX / 8, &bytes, &len);

    if (err != 0)
        return err;
    err = sl_case_parse(path, bytes, len, out);
    free(bytes);
    return err;
}
