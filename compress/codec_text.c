/* SPDX-License-Identifier: Apache-2.0 */
/* Specs of codecs as text: "topk:k=41,stochastic=on". */
#include "compress/codec.h"

#include "core/err.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_MAX 32

enum kind { KIND_U8, KIND_U16, KIND_U32, KIND_U64, KIND_FLAG, KIND_DTYPE };

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset; /* in the spec */
    uint8_t flag;
} keys[] = {
    {"bits", KIND_U8, offsetof(struct sl_codec_spec, bits), 0},
    {"k", KIND_U32, offsetof(struct sl_codec_spec, k), 0},
    {"rows", KIND_U16, offsetof(struct sl_codec_spec, rows), 0},
    {"row", KIND_U16, offsetof(struct sl_codec_spec, row), 0},
    {"ranks", KIND_U32, offsetof(struct sl_codec_spec, ranks), 0},
    {"stochastic", KIND_FLAG, offsetof(struct sl_codec_spec, flags), SL_SPEC_STOCHASTIC},
    {"rotated", KIND_FLAG, offsetof(struct sl_codec_spec, flags), SL_SPEC_ROTATED},
    {"seed", KIND_U64, offsetof(struct sl_codec_spec, seed), 0},
    {"dtype", KIND_DTYPE, offsetof(struct sl_codec_spec, dtype), 0},
};

/* Bytes of the field of a number. */
static size_t width(const struct key *key)
{
    return key->kind == KIND_U64 ? 8 : key->kind == KIND_U32 ? 4 : key->kind == KIND_U16 ? 2 : 1;
}

static const uint8_t dtypes[] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};

/* Copies the text up to one of the ends, or its own end, which it returns; NULL: too long. */
static const char *take(const char *text, const char *ends, char out[TOKEN_MAX])
{
    size_t len = strcspn(text, ends);

    if (len >= TOKEN_MAX)
        return NULL;
    memcpy(out, text, len);
    out[len] = '\0';
    return text + len;
}

static int fail_name(const char *name)
{
    char names[512] = "";

    for (size_t i = 0; sl_codec_row(i) != NULL; i++) {
        sl_text_add(names, sizeof(names), "%s%s", i > 0 ? ", " : "", sl_codec_row(i)->name);
    }
    return sl_fail(-EINVAL, "there is no codec \"%.32s\": the choices are %s", name, names);
}

static int fail_key(const char *codec, const char *key)
{
    char names[256] = "";

    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++)
        sl_text_add(names, sizeof(names), "%s%s", i > 0 ? ", " : "", keys[i].name);
    return sl_fail(-EINVAL, "\"%.32s\" is no parameter of codec %s: the choices are %s", key, codec,
                   names);
}

static int parse_number(const struct key *key, const char *value, uint64_t most, uint64_t *out)
{
    uint64_t sum = 0;
    const char *at = value;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        if (sum > (most - digit) / 10)
            break;
        sum = sum * 10 + digit;
    }
    if (at == value || *at != '\0')
        return sl_fail(-EINVAL, "%s=%s: a whole number up to %llu is needed", key->name, value,
                       (unsigned long long)most);
    *out = sum;
    return 0;
}

static int parse_dtype(const char *value, uint8_t *out)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(dtypes); i++)
        if (strcmp(value, sluice_dtype_name((enum sluice_dtype)dtypes[i])) == 0) {
            *out = dtypes[i];
            return 0;
        }
    return sl_fail(-EINVAL, "dtype=%s: the choices are f32, bf16, f16", value);
}

static int parse_flag(const struct key *key, const char *value, uint8_t *flags)
{
    if (strcmp(value, "on") == 0)
        *flags |= key->flag;
    else if (strcmp(value, "off") == 0)
        *flags &= (uint8_t)~key->flag;
    else
        return sl_fail(-EINVAL, "%s=%s: the choices are on, off", key->name, value);
    return 0;
}

static int parse_value(const struct key *key, const char *value, struct sl_codec_spec *spec)
{
    static const uint64_t most[] = {[KIND_U8] = UINT8_MAX,
                                    [KIND_U16] = UINT16_MAX,
                                    [KIND_U32] = UINT32_MAX,
                                    [KIND_U64] = UINT64_MAX};
    char *field = (char *)spec + key->offset;
    uint64_t number;
    int err;

    if (key->kind == KIND_FLAG)
        return parse_flag(key, value, (uint8_t *)field);
    if (key->kind == KIND_DTYPE)
        return parse_dtype(value, (uint8_t *)field);
    err = parse_number(key, value, most[key->kind], &number);
    if (err != 0)
        return err;
    memcpy(field, &number, width(key));
    return 0;
}

static const struct key *key_of(const char *name)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

int sl_codec_parse(const char *text, struct sl_codec_spec *out)
{
    struct sl_codec_spec spec = {.dtype = SLUICE_F32};
    char name[TOKEN_MAX], word[TOKEN_MAX], value[TOKEN_MAX];
    const char *at = take(text, ":", name);
    const struct sl_codec *codec = at != NULL ? sl_codec_by_name(name) : NULL;
    unsigned seen = 0;
    int err;

    if (codec == NULL)
        return fail_name(text);
    spec.id = codec->id;
    while (*at != '\0') {
        const char *start = at + 1;
        const struct key *key;

        at = take(start, "=,", word);
        key = at != NULL ? key_of(word) : NULL;
        if (key == NULL)
            return fail_key(codec->name, at != NULL ? word : start);
        if (*at != '=' || (at = take(at + 1, ",", value)) == NULL)
            return sl_fail(-EINVAL, "codec %s: %s needs a value, as in \"%s=...\"", codec->name,
                           word, word);
        if ((seen & 1u << (key - keys)) != 0)
            return sl_fail(-EINVAL, "codec %s: %s is given twice", codec->name, word);
        seen |= 1u << (key - keys);
        err = parse_value(key, value, &spec);
        if (err != 0)
            return err;
    }
    err = sl_codec_check(&spec);
    if (err == 0)
        *out = spec;
    return err;
}

/* The value of a key as text; "": what it is where the text does not say. */
static void print_value(const struct key *key, const struct sl_codec_spec *spec, char out[24])
{
    uint64_t number = 0;

    memcpy(&number, (const char *)spec + key->offset, width(key));
    out[0] = '\0';
    if (key->kind == KIND_FLAG && (number & key->flag) != 0)
        snprintf(out, 24, "on");
    else if (key->kind == KIND_DTYPE && number != SLUICE_F32)
        snprintf(out, 24, "%s", sluice_dtype_name((enum sluice_dtype)number));
    else if (key->kind < KIND_FLAG && number != 0)
        snprintf(out, 24, "%llu", (unsigned long long)number);
}

int sl_codec_print(const struct sl_codec_spec *spec, char *out, size_t cap)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    char text[256] = "", value[24], mark = ':';

    for (size_t i = 0; i < SL_ARRAY_LEN(keys); i++) {
        print_value(&keys[i], spec, value);
        if (value[0] == '\0')
            continue;
        sl_text_add(text, sizeof(text), "%c%s=%s", mark, keys[i].name, value);
        mark = ',';
    }
    if (codec == NULL)
        return snprintf(out, cap, "codec-%u%s", spec->id, text);
    return snprintf(out, cap, "%s%s", codec->name, text);
}
