/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a cluster: merging is commutative, associative and idempotent; what is damaged, or
 * too much, changes nothing. */
#include "core/err.h"
#include "core/rng.h"
#include "monitor/cluster/model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MESSAGES 200
#define SHUFFLES 200

static const struct sl_cluster_limits limits = {.nodes = 1000, .bytes = 1 << 24};

static struct sl_cluster_model *new_model(const struct sl_cluster_limits *of)
{
    struct sl_cluster_model *model;

    assert_int_equal(sl_cluster_model_new(of, &model), 0);
    return model;
}

static int take(struct sl_cluster_model *model, const char *text)
{
    return sl_cluster_take(model, text, strlen(text), NULL, NULL);
}

/* An observation of some node, of some time: with few numbers, so that many are of the same. */
static void draw(struct sl_rng *rng, char *out, size_t cap)
{
    static const char *const healths[] = {"ok", "degraded", "bad"};
    unsigned node = (unsigned)sl_rng_below(rng, 4), epoch = 1 + (unsigned)sl_rng_below(rng, 3);
    unsigned seq = (unsigned)sl_rng_below(rng, 4);
    const char *health = healths[sl_rng_below(rng, 3)];

    switch (sl_rng_below(rng, 4)) {
    case 0:
        snprintf(out, cap,
                 "{\"version\":1,\"node\":\"n%u\",\"epoch\":%u,\"seq\":%u,\"time_ms\":5,"
                 "\"alive\":%s}",
                 node, epoch, seq, sl_rng_below(rng, 2) == 0 ? "true" : "false");
        break;
    case 1: /* of a start that others come after: it must not be taken for the last one's */
        epoch = epoch > 2 ? 2 : epoch;
        snprintf(out, cap,
                 "{\"version\":1,\"node\":\"n%u\",\"boot_id\":\"b%u\",\"epoch\":%u,\"seq\":%u,"
                 "\"time_ms\":%u,\"sources\":{\"ports\":{\"ports\":[{\"subject\":\"p\","
                 "\"sent\":%u}]}}}",
                 node, epoch, epoch, seq, seq, (unsigned)sl_rng_below(rng, 3));
        break;
    default:
        snprintf(out, cap,
                 "{\"version\":1,\"node\":\"n%u\",\"boot_id\":\"b%u\",\"epoch\":%u,\"seq\":%u,"
                 "\"time_ms\":%u,\"sources\":{\"status\":{\"health\":\"%s\"}}}",
                 node, epoch, epoch, seq, seq, health);
        break;
    }
}

static void shuffle(struct sl_rng *rng, unsigned *order, unsigned count)
{
    for (unsigned i = count; i > 1; i--) {
        unsigned k = (unsigned)sl_rng_below(rng, i), kept = order[i - 1];

        order[i - 1] = order[k];
        order[k] = kept;
    }
}

/* What follows from a model, beside its digest. */
static void summary(struct sl_cluster_model *model, char *out, size_t cap)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);
    size_t len = 0;

    for (unsigned i = 0; i < count; i++)
        len += (size_t)snprintf(out + len, cap - len, "%s %s %s %d %u;", nodes[i]->name,
                                nodes[i]->boot_id, nodes[i]->facts.health, nodes[i]->is_dead,
                                nodes[i]->facts.port_count);
}

static void the_order_and_repeats_of_observations_do_not_matter(void **state)
{
    static char texts[MESSAGES][256];
    char first_summary[1024] = "", other[1024];
    unsigned order[MESSAGES];
    uint64_t digest = 0;
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 16);
    for (unsigned i = 0; i < MESSAGES; i++) {
        draw(&rng, texts[i], sizeof(texts[i]));
        order[i] = i;
    }
    for (unsigned round = 0; round < SHUFFLES; round++) {
        struct sl_cluster_model *model = new_model(&limits);

        shuffle(&rng, order, MESSAGES);
        for (unsigned i = 0; i < MESSAGES; i++) {
            assert_true(take(model, texts[order[i]]) >= 0);
            if (sl_rng_below(&rng, 3) == 0) /* again, also what is old */
                assert_int_equal(take(model, texts[order[sl_rng_below(&rng, i + 1)]]), 0);
        }
        summary(model, other, sizeof(other));
        if (round == 0) {
            digest = sl_cluster_digest(model);
            strcpy(first_summary, other);
        }
        assert_string_equal(other, first_summary);
        assert_true(sl_cluster_digest(model) == digest);
        sl_cluster_model_free(model);
    }
}

static void a_later_start_is_newer_than_any_number_of_the_one_before(void **state)
{
    struct sl_cluster_model *model = new_model(&limits);
    struct sl_cluster_node *node;

    (void)state;
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":5,\"seq\":900,\"time_ms\":1,"
                          "\"sources\":{\"status\":{\"health\":\"bad\"}}}"),
                     1);
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":6,\"seq\":1,\"time_ms\":2,"
                          "\"sources\":{\"status\":{\"health\":\"ok\"}}}"),
                     1);
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":5,\"seq\":901,\"time_ms\":3,"
                          "\"sources\":{\"status\":{\"health\":\"bad\"}}}"),
                     0);
    node = sl_cluster_node(model, "a", false);
    assert_string_equal(node->facts.health, "ok");
    sl_cluster_model_free(model);
}

static void a_last_will_is_of_its_own_start_alone(void **state)
{
    struct sl_cluster_model *model = new_model(&limits);
    struct sl_cluster_node *node;

    (void)state;
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":5,\"seq\":9,\"time_ms\":1,"
                          "\"sources\":{\"status\":{\"health\":\"ok\"}}}"),
                     1);
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":5,\"seq\":3,\"time_ms\":1,"
                          "\"alive\":false}"),
                     1);
    node = sl_cluster_node(model, "a", false);
    assert_true(node->is_dead);
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":5,\"seq\":4,\"time_ms\":1,"
                          "\"alive\":true}"),
                     1);
    assert_false(node->is_dead);
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":5,\"seq\":5,\"time_ms\":1,"
                          "\"alive\":false}"),
                     1);
    assert_true(node->is_dead);
    assert_int_equal(take(model,
                          "{\"version\":1,\"node\":\"a\",\"epoch\":6,\"seq\":1,\"time_ms\":2,"
                          "\"sources\":{\"status\":{\"health\":\"ok\"}}}"),
                     1);
    assert_false(node->is_dead);
    sl_cluster_model_free(model);
}

static void what_is_damaged_is_refused_and_counted(void **state)
{
    static const char *const wrong[] = {
        "",
        "{",
        "[]",
        "{}",
        "null",
        "{\"version\":2}",
        "{\"version\":1,\"node\":\"../a\",\"epoch\":1,\"seq\":1,\"time_ms\":1,\"sources\":{}}",
        "{\"version\":1,\"node\":\"a\",\"epoch\":0,\"seq\":1,\"time_ms\":1,\"sources\":{}}",
        "{\"version\":1,\"node\":\"a\",\"epoch\":1,\"seq\":-1,\"time_ms\":1,\"sources\":{}}",
        "{\"version\":1,\"node\":\"a\",\"epoch\":1,\"seq\":1,\"time_ms\":1}",
        "{\"version\":1,\"node\":\"a\",\"epoch\":1,\"seq\":1,\"time_ms\":1,\"sources\":[]}",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["};
    struct sl_cluster_model *model = new_model(&limits);
    unsigned count;

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(wrong); i++)
        if (take(model, wrong[i]) != -EBADMSG)
            fail_msg("%s", wrong[i]);
    assert_int_equal(sl_cluster_counts(model)->refused, SL_ARRAY_LEN(wrong));
    (void)sl_cluster_nodes(model, &count);
    assert_int_equal(count, 0);
    assert_int_equal(sl_cluster_take(model,
                                     "{\"version\":1,\"node\":\"a\",\"epoch\":1,\"seq\":1,"
                                     "\"time_ms\":1,\"sources\":{}}",
                                     67, "b", NULL),
                     -EBADMSG);
    sl_cluster_model_free(model);
}

static void nodes_and_bytes_have_their_limits(void **state)
{
    const struct sl_cluster_limits few = {.nodes = 3, .bytes = 1 << 20};
    struct sl_cluster_model *model = new_model(&few);
    char *text = malloc(1 << 20);
    char one[256];
    int len;

    (void)state;
    assert_non_null(text);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(one, sizeof(one),
                 "{\"version\":1,\"node\":\"n%u\",\"epoch\":1,\"seq\":1,\"time_ms\":1,"
                 "\"sources\":{\"status\":{\"health\":\"ok\"}}}",
                 i);
        assert_int_equal(take(model, one), i < 3 ? 1 : -ENOSPC);
    }
    assert_int_equal(sl_cluster_counts(model)->left_out, 2);
    len = snprintf(text, 1 << 20,
                   "{\"version\":1,\"node\":\"n0\",\"epoch\":1,\"seq\":2,\"time_ms\":1,"
                   "\"sources\":{\"status\":{\"health\":\"");
    memset(text + len, 'x', 700000);
    strcpy(text + len + 700000, "\"}}}");
    assert_int_equal(take(model, text), 1);
    memcpy(strstr(text, "n0"), "n1", 2);
    assert_int_equal(take(model, text), -ENOSPC);
    assert_string_equal(sl_cluster_node(model, "n1", false)->facts.health, "ok");
    sl_cluster_forget(model, "n0");
    assert_int_equal(take(model, text), 1);
    assert_true(sl_cluster_counts(model)->bytes < few.bytes);
    free(text);
    sl_cluster_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_and_repeats_of_observations_do_not_matter),
        cmocka_unit_test(a_later_start_is_newer_than_any_number_of_the_one_before),
        cmocka_unit_test(a_last_will_is_of_its_own_start_alone),
        cmocka_unit_test(what_is_damaged_is_refused_and_counted),
        cmocka_unit_test(nodes_and_bytes_have_their_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
