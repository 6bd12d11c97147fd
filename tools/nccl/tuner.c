/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner tables: NCCL's choice is left alone, unless SLUICE_NCCL_TUNER has a rule for it.
 *
 * Before each collective NCCL hands over the costs of all algorithms and protocols. A rule
 * strikes out those that it does not name, where NCCL could use one that it does; among what is
 * left NCCL chooses.
 */
#include "tools/nccl/tuner.h"

#include "core/config.h"
#include "core/err.h"
#include "core/log.h"
#include "tools/nccl/abi_tuner.h"
#include "tools/nccl/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME "Sluice"
#define EXPORT __attribute__((visibility("default")))
#define FILE_MAX 16384

typedef enum sl_nccl_result result;

extern char **environ;

static const char *const funcs[] = {"broadcast", "reduce", "all_gather", "reduce_scatter",
                                    "all_reduce"};
static const char *const algos[] = {"tree",      "ring", "collnet_direct", "collnet_chain", "nvls",
                                    "nvls_tree", "pat"};
static const char *const protos[] = {"ll", "ll128", "simple"};

/* ---- rules ---- */

/* The place of a word of len bytes, -1 for *; -2: there is no such word. */
static int word_of(const char *const *words, size_t count, const char *text, size_t len)
{
    if (len == 1 && *text == '*')
        return -1;
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == len && strncasecmp(words[i], text, len) == 0)
            return (int)i;
    return -2;
}

static int bytes_of(const char *text, size_t len, int64_t *out)
{
    char copy[32];

    if (len == 0 || len >= sizeof(copy))
        return -EINVAL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return sl_parse_bytes(copy, out);
}

/* MIN-MAX, either of which may be missing. */
static int read_range(const char *text, size_t len, struct sl_nccl_rule *out)
{
    const char *dash = memchr(text, '-', len);
    size_t before = dash != NULL ? (size_t)(dash - text) : 0;

    if (len == 1 && *text == '*')
        return 0;
    if (dash == NULL || (before > 0 && bytes_of(text, before, &out->bytes_min) != 0) ||
        (before + 1 < len && bytes_of(dash + 1, len - before - 1, &out->bytes_max) != 0))
        return -EINVAL;
    return 0;
}

/* ,channels=N ,chunk=SIZE */
static int read_extra(const char *text, size_t len, struct sl_nccl_rule *out)
{
    const char *equals = memchr(text, '=', len);
    size_t name = equals != NULL ? (size_t)(equals - text) : 0;
    int64_t value = 0;

    if (equals == NULL || bytes_of(equals + 1, len - name - 1, &value) != 0 || value <= 0)
        return -EINVAL;
    if (name == 8 && memcmp(text, "channels", 8) == 0 && value <= 64)
        out->channels = (int)value;
    else if (name == 5 && memcmp(text, "chunk", 5) == 0)
        out->chunk_bytes = value;
    else
        return -EINVAL;
    return 0;
}

static int read_rule(const char *text, size_t len, struct sl_nccl_rule *out)
{
    const char *end = text + len, *equals = memchr(text, '=', len);
    const char *choice = equals != NULL ? equals + 1 : end, *colon, *slash;

    *out = (struct sl_nccl_rule){.bytes_max = INT64_MAX};
    if (equals == NULL)
        return -EINVAL;
    colon = memchr(text, ':', (size_t)(equals - text));
    out->func = word_of(funcs, SL_ARRAY_LEN(funcs), text, (size_t)((colon ?: equals) - text));
    if (out->func == -2 ||
        (colon != NULL && read_range(colon + 1, (size_t)(equals - colon - 1), out) != 0))
        return -EINVAL;
    len = (size_t)(end - choice);
    slash = memchr(choice, '/', len);
    if (slash == NULL)
        return -EINVAL;
    out->algo = word_of(algos, SL_ARRAY_LEN(algos), choice, (size_t)(slash - choice));
    const char *comma = memchr(slash, ',', (size_t)(end - slash));

    out->proto =
        word_of(protos, SL_ARRAY_LEN(protos), slash + 1, (size_t)((comma ?: end) - slash - 1));
    if (out->algo == -2 || out->proto == -2)
        return -EINVAL;
    while (comma != NULL) {
        const char *next = memchr(comma + 1, ',', (size_t)(end - comma - 1));

        if (read_extra(comma + 1, (size_t)((next ?: end) - comma - 1), out) != 0)
            return -EINVAL;
        comma = next;
    }
    return 0;
}

int sl_nccl_rules_read(const char *text, struct sl_nccl_rules *out)
{
    out->count = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, ";\n"), whole = len + (text[len] != '\0');
        const char *start = text + strspn(text, " \t\r");

        text += whole;
        len = start < text ? (size_t)(text - start) : 0;
        while (len > 0 && strchr(" \t\r\n;", start[len - 1]) != NULL)
            len--;
        if (len == 0 || *start == '#')
            continue;
        if (out->count == SL_NCCL_RULES_MAX)
            return sl_fail(-EINVAL, "SLUICE_NCCL_TUNER has more than %d rules", SL_NCCL_RULES_MAX);
        if (read_rule(start, len, &out->rules[out->count]) != 0)
            return sl_fail(
                -EINVAL, "SLUICE_NCCL_TUNER: '%.*s' is no rule such as all_reduce:1M-=ring/simple",
                (int)len, start);
        out->count++;
    }
    return 0;
}

static int read_file(const char *path, struct sl_nccl_rules *out)
{
    FILE *file = fopen(path, "re");
    char *text = calloc(1, FILE_MAX + 1);
    size_t len = file != NULL && text != NULL ? fread(text, 1, FILE_MAX + 1, file) : 0;
    int err;

    if (file == NULL || text == NULL)
        err = sl_fail(-ENOENT, "SLUICE_NCCL_TUNER: '%s' cannot be read", path);
    else if (len > FILE_MAX || memchr(text, '\0', len) != NULL)
        err = sl_fail(-EINVAL, "SLUICE_NCCL_TUNER: '%s' is no text of at most %d bytes", path,
                      FILE_MAX);
    else
        err = sl_nccl_rules_read(text, out);
    if (file != NULL)
        fclose(file);
    free(text);
    return err;
}

const struct sl_nccl_rule *sl_nccl_rule_for(const struct sl_nccl_rules *rules, int func,
                                            size_t bytes)
{
    for (unsigned i = 0; i < rules->count; i++) {
        const struct sl_nccl_rule *rule = &rules->rules[i];

        if ((rule->func == -1 || rule->func == func) && bytes >= (uint64_t)rule->bytes_min &&
            bytes <= (uint64_t)rule->bytes_max)
            return rule;
    }
    return NULL;
}

static bool names(const struct sl_nccl_rule *rule, int algo, int proto)
{
    return (rule->algo == -1 || rule->algo == algo) && (rule->proto == -1 || rule->proto == proto);
}

void sl_nccl_rule_apply(const struct sl_nccl_rule *rule, float *costs, int algo_count,
                        int proto_count, int *channels)
{
    bool possible = false;

    for (int i = 0; i < algo_count * proto_count; i++)
        possible |= names(rule, i / proto_count, i % proto_count) && costs[i] >= 0;
    if (!possible) /* NCCL would have nothing to choose from */
        return;
    for (int i = 0; i < algo_count * proto_count; i++)
        if (!names(rule, i / proto_count, i % proto_count))
            costs[i] = SL_NCCL_COST_IGNORE;
    if (rule->channels > 0 && channels != NULL)
        *channels = rule->channels;
}

/* ---- tables ---- */

static result open_any(void **out)
{
    struct sl_nccl_rules *rules = NULL;
    struct sl_config config;
    int err = sl_nccl_start(&config, environ);

    *out = NULL;
    if (err == 0 && sl_nccl_config(&config)->tuner[0] == '\0')
        return SL_NCCL_SUCCESS;
    if (err == 0)
        rules = calloc(1, sizeof(*rules));
    if (rules != NULL)
        err = sl_nccl_config(&config)->tuner[0] == '@'
                  ? read_file(sl_nccl_config(&config)->tuner + 1, rules)
                  : sl_nccl_rules_read(sl_nccl_config(&config)->tuner, rules);
    if (err == 0 && rules != NULL) {
        sl_info("nccl", "%u rules for algorithms", rules->count);
        *out = rules;
        return SL_NCCL_SUCCESS;
    }
    free(rules);
    sl_warn("nccl", "NCCL chooses algorithms by itself: %s", sluice_last_error());
    return SL_NCCL_SUCCESS;
}

static result finalize(void *ctx)
{
    free(ctx);
    return SL_NCCL_SUCCESS;
}

static result init_v3(size_t ranks, size_t nodes, sl_nccl_logger *logger, void **ctx)
{
    (void)ranks, (void)nodes, (void)logger;
    return open_any(ctx);
}

static result init_v5(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes,
                      sl_nccl_logger *logger, struct sl_nccl_nvlink_domains *domains,
                      struct sl_nccl_tuner_constants *constants)
{
    (void)comm_id, (void)ranks, (void)nodes, (void)logger, (void)domains, (void)constants;
    return open_any(ctx);
}

static result choose_v4(void *ctx, enum sl_nccl_func func, size_t bytes, int ops, float **costs,
                        int algo_count, int proto_count, int reg_buf, int *channels)
{
    const struct sl_nccl_rule *rule = ctx != NULL ? sl_nccl_rule_for(ctx, (int)func, bytes) : NULL;

    (void)ops, (void)reg_buf;
    if (rule != NULL) /* a table in one piece, in spite of its type */
        sl_nccl_rule_apply(rule, (float *)(void *)costs, algo_count, proto_count, channels);
    return SL_NCCL_SUCCESS;
}

static result choose_v3(void *ctx, enum sl_nccl_func func, size_t bytes, int ops, float **costs,
                        int algo_count, int proto_count, int *channels)
{
    return choose_v4(ctx, func, bytes, ops, costs, algo_count, proto_count, 0, channels);
}

static result chunk(void *ctx, enum sl_nccl_func func, size_t bytes, int algo, int proto,
                    int channels, size_t *chunk_bytes)
{
    const struct sl_nccl_rule *rule = ctx != NULL ? sl_nccl_rule_for(ctx, (int)func, bytes) : NULL;

    (void)channels;
    if (rule != NULL && rule->chunk_bytes > 0 && names(rule, algo, proto))
        *chunk_bytes = (size_t)rule->chunk_bytes;
    return SL_NCCL_SUCCESS;
}

#define TABLE(version, table, ...)                                                                 \
    extern const struct sl_nccl_tuner_##table ncclTunerPlugin_##version;                           \
    EXPORT const struct sl_nccl_tuner_##table ncclTunerPlugin_##version = {                        \
        .name = NAME, .finalize = finalize, __VA_ARGS__}

TABLE(v3, v3, .init = init_v3, .choose = choose_v3);
TABLE(v4, v4, .init = init_v3, .choose = choose_v4);
TABLE(v5, v6, .init = init_v5, .choose = choose_v4);
TABLE(v6, v6, .init = init_v5, .choose = choose_v4, .chunk = chunk);
