/* SPDX-License-Identifier: Apache-2.0 */
/* FedZip: layers by their own centroids, the mean of all ranks', and messages that lie. */
#include "draw.h"
#include "ranks.h"

#include "compress/train/fedzip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const size_t layers[] = {5000, 1, 300, 4096};
#define LAYERS (sizeof(layers) / sizeof(layers[0]))
#define COUNT (5000 + 1 + 300 + 4096)

static float changes[RANKS_MOST][COUNT], means[RANKS_MOST][COUNT];
static size_t sent;

struct plan {
    const char *spec;
    void (*forge)(char *message, size_t len); /* what rank 0 gives to the network at last */
};

struct forger {
    struct sl_net net;
    const struct sl_net *true_net;
    void (*forge)(char *message, size_t len);
};

static int forged_gather(void *arg, const void *in, size_t len, void *out)
{
    struct forger *f = arg;
    int err = f->true_net->gather(f->true_net->arg, in, len, out);

    if (len > sizeof(uint64_t))
        f->forge(out, len);
    return err;
}

static int run(const struct sl_net *net, void *arg)
{
    const struct plan *plan = arg;
    struct sl_fedzip_config config = {.layers = layers, .layer_count = LAYERS};
    struct forger forger = {*net, net, plan->forge};
    struct sl_fedzip f;
    size_t size;
    void *memory;
    int err = sl_codec_parse(plan->spec, &config.spec);

    if (plan->forge != NULL) {
        forger.net.arg = &forger;
        forger.net.gather = forged_gather;
    }
    if (err == 0)
        err = sl_fedzip_size(&config, &forger.net, &size);
    if (err != 0)
        return err;
    memory = ranks_memory(size);
    sl_fedzip_init(&f, &config, &forger.net, memory);
    err = sl_fedzip_mean(&f, changes[net->rank], means[net->rank]);
    if (net->rank == 0)
        sent = f.sent;
    free(memory);
    return err;
}

static void draw_changes(void)
{
    for (unsigned w = 0; w < RANKS_MOST; w++) {
        draw_fill(DRAW_GAUSSIAN, changes[w], COUNT);
        sl_scale(changes[w] + 5001, 100, 300); /* a layer of another size */
    }
}

static void each_layer_is_what_its_codec_alone_makes_of_it(void **state)
{
    _Alignas(16) static char message[1 << 17];
    static float expected[COUNT];
    struct plan plan = {.spec = "kmeans:k=400,bits=3"};
    struct sl_codec_spec spec;
    struct sl_codec_at at = {0};

    draw_changes();
    assert_int_equal(ranks_run(3, run, &plan), 0);
    assert_int_equal(sl_codec_parse(plan.spec, &spec), 0);
    memset(expected, 0, sizeof(expected));
    for (unsigned w = 0; w < 3; w++) {
        size_t first = 0;

        for (unsigned i = 0; i < LAYERS; first += layers[i++]) {
            const struct sl_codec *codec = sl_codec_by_id(spec.id);
            size_t len = codec->encode(&spec, &at, changes[w] + first, layers[i], message);

            assert_int_equal(
                codec->decode_add(&spec, &at, message, len, layers[i], expected + first), 0);
        }
    }
    sl_scale(expected, 1 / 3.0f, COUNT);
    for (unsigned w = 0; w < 3; w++)
        assert_memory_equal(means[w], expected, sizeof(expected));
    /* Less than a byte of each that is kept. */
    assert_in_range(sent, 500, 400 * 3 * 2);
}

static void raw_layers_are_the_mean(void **state)
{
    struct plan plan = {.spec = "raw"};

    draw_changes();
    assert_int_equal(ranks_run(2, run, &plan), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(means[1][i] == (changes[0][i] + changes[1][i]) * 0.5f);
}

static void huge_layer(char *message, size_t len)
{
    memset(message, 0xff, 4);
}

static void longer_layer(char *message, size_t len)
{
    uint32_t n;

    memcpy(&n, message, sizeof(n));
    n += 4;
    memcpy(message, &n, sizeof(n));
}

static void no_layers(char *message, size_t len)
{
    memset(message, 0, 16);
}

static void layers_that_are_not_where_the_head_says_are_refused(void **state)
{
    struct plan plan = {.spec = "kmeans:k=400,bits=3"};
    void (*const forgers[])(char *, size_t) = {huge_layer, longer_layer, no_layers};

    draw_changes();
    for (unsigned i = 0; i < 3; i++) {
        plan.forge = forgers[i];
        assert_int_equal(ranks_run(2, run, &plan), -EBADMSG);
    }
}

/* A rank that says it has more than there can be. */
static void endless_message(char *lens, size_t len)
{
    memset(lens, 0xff, len);
}

static int forged_lens(void *arg, const void *in, size_t len, void *out)
{
    struct forger *f = arg;
    int err = f->true_net->gather(f->true_net->arg, in, len, out);

    f->forge(out, len);
    return err;
}

static int gather_messages(const struct sl_net *net, void *arg)
{
    struct forger forger = {*net, net, endless_message};
    struct sl_room room = {0};
    struct sl_messages m;
    int err;

    forger.net.arg = &forger;
    forger.net.gather = forged_lens;
    sl_messages_lay(&m, &forger.net, 64, &room);
    room = (struct sl_room){.memory = ranks_memory(room.used)};
    sl_messages_lay(&m, &forger.net, 64, &room);
    err = sl_messages_gather(&m, 64);
    free(room.memory);
    return err;
}

static void longer_messages_than_there_can_be_are_refused(void **state)
{
    assert_int_equal(ranks_run(2, gather_messages, NULL), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_is_what_its_codec_alone_makes_of_it),
        cmocka_unit_test(raw_layers_are_the_mean),
        cmocka_unit_test(layers_that_are_not_where_the_head_says_are_refused),
        cmocka_unit_test(longer_messages_than_there_can_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
