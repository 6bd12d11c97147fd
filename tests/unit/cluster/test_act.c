/* SPDX-License-Identifier: Apache-2.0 */
/* Who of several instances does an action: over a broker that gives all messages in one order, with
 * instances that die and come back at any moment, each action is done, and by one instance, unless
 * one that had it, or claimed it, died before it was said to be done. */
#include "core/err.h"
#include "core/rng.h"
#include "monitor/cluster/act.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define INSTANCES 3
#define KEYS 20
#define MESSAGES 8192
#define WALKS 300

struct message {
    enum { CLAIM, BEGUN, DONE, DEAD, ALIVE } kind;
    unsigned key, from;
};

struct world;

struct instance {
    struct world *world;
    struct sl_act *act;
    char name[16];
    bool is_up;
    unsigned read; /* messages that it was given */
    int running;   /* key, or -1 */
    bool wants[KEYS];
};

struct world {
    struct instance instances[INSTANCES];
    struct message log[MESSAGES]; /* in the broker's order */
    unsigned count;
    int kept[KEYS];        /* the last message of action/KEY, or -1 */
    unsigned runs[KEYS];   /* how often the command was called */
    unsigned deaths[KEYS]; /* of who had or claimed it, before it was done */
    uint64_t now_ns;
};

static void key_of(unsigned key, char out[SL_ACT_KEY])
{
    snprintf(out, SL_ACT_KEY, "%016x-opened", key);
}

static unsigned number_of(const char *key)
{
    return (unsigned)strtoul(key, NULL, 16);
}

static int put(struct world *world, int kind, unsigned key, unsigned from)
{
    assert_true(world->count < MESSAGES);
    world->log[world->count] = (struct message){.kind = kind, .key = key, .from = from};
    if (kind == BEGUN || kind == DONE)
        world->kept[key] = (int)world->count;
    world->count++;
    return 0;
}

static unsigned place_of(const struct instance *instance)
{
    return (unsigned)(instance - instance->world->instances);
}

static int claim(void *arg, const char *key)
{
    struct instance *instance = arg;

    return put(instance->world, CLAIM, number_of(key), place_of(instance));
}

static int begun(void *arg, const char *key)
{
    struct instance *instance = arg;

    return put(instance->world, BEGUN, number_of(key), place_of(instance));
}

static int done(void *arg, const char *key)
{
    struct instance *instance = arg;

    return put(instance->world, DONE, number_of(key), place_of(instance));
}

static void run(void *arg, const char *key)
{
    struct instance *instance = arg;

    assert_int_equal(instance->running, -1);
    instance->running = (int)number_of(key);
    instance->world->runs[number_of(key)]++;
}

static const struct sl_act_ops ops = {.claim = claim, .begun = begun, .done = done, .run = run};

static void hear(struct instance *instance, const struct message *message)
{
    char key[SL_ACT_KEY];
    const char *from = instance->world->instances[message->from].name;

    key_of(message->key, key);
    switch (message->kind) {
    case CLAIM: sl_act_heard_claim(instance->act, key, from); break;
    case BEGUN: sl_act_heard_begun(instance->act, key, from); break;
    case DONE: sl_act_heard_done(instance->act, key); break;
    default: sl_act_heard_instance(instance->act, from, message->kind == ALIVE); break;
    }
}

/* It subscribes: what was kept comes, and then what is new. */
static void begin(struct instance *instance)
{
    struct world *world = instance->world;

    instance->is_up = true;
    instance->running = -1;
    assert_int_equal(sl_act_new(instance->name, &ops, instance, &instance->act), 0);
    put(world, ALIVE, 0, place_of(instance));
    for (unsigned i = 0; i < KEYS; i++)
        if (world->kept[i] >= 0)
            hear(instance, &world->log[world->kept[i]]);
    for (unsigned i = 0; i < INSTANCES; i++)
        hear(instance,
             &(struct message){.kind = world->instances[i].is_up ? ALIVE : DEAD, .from = i});
    instance->read = world->count;
    sl_act_connected(instance->act, world->now_ns);
    for (unsigned i = 0; i < KEYS; i++) {
        char key[SL_ACT_KEY];

        key_of(i, key);
        if (instance->wants[i])
            assert_int_equal(sl_act_want(instance->act, key), 0);
    }
}

static bool has_said_done(const struct world *world, unsigned key)
{
    return world->kept[key] >= 0 && world->log[world->kept[key]].kind == DONE;
}

static void die(struct instance *instance)
{
    struct world *world = instance->world;

    for (unsigned i = 0; i < KEYS; i++) {
        char key[SL_ACT_KEY];

        key_of(i, key);
        enum sl_act_state state = sl_act_state_of(instance->act, key);

        /* A claim that is under way when a third instance begins may look to it as the first. */
        world->deaths[i] +=
            (state == SL_ACT_MINE || state == SL_ACT_CLAIMED) && !has_said_done(world, i);
    }
    sl_act_free(instance->act);
    instance->act = NULL;
    instance->is_up = false;
    put(world, DEAD, 0, place_of(instance));
}

static void listen(struct instance *instance, unsigned most)
{
    for (; most > 0 && instance->read < instance->world->count; most--)
        hear(instance, &instance->world->log[instance->read++]);
}

static void end_command(struct instance *instance)
{
    char key[SL_ACT_KEY];

    if (instance->running < 0)
        return;
    key_of((unsigned)instance->running, key);
    instance->running = -1;
    sl_act_ended(instance->act, key);
}

static void want(struct instance *instance, unsigned key)
{
    char text[SL_ACT_KEY];

    key_of(key, text);
    instance->wants[key] = true;
    if (instance->is_up)
        assert_int_equal(sl_act_want(instance->act, text), 0);
}

/* returns: who is dead begins anew; else whoever is left has to do it all. */
static void settle(struct world *world, bool returns)
{
    for (unsigned round = 0; round < 400; round++) {
        world->now_ns += SL_ACT_SETTLE_NS / 4;
        for (unsigned i = 0; i < INSTANCES; i++) {
            struct instance *instance = &world->instances[i];

            if (!instance->is_up && !returns)
                continue;
            if (!instance->is_up)
                begin(instance);
            listen(instance, MESSAGES);
            sl_act_tick(instance->act, world->now_ns, true);
            end_command(instance);
        }
    }
}

static void step(struct world *world, struct sl_rng *rng, unsigned deaths)
{
    struct instance *instance = &world->instances[sl_rng_below(rng, INSTANCES)];

    world->now_ns += sl_rng_below(rng, SL_ACT_SETTLE_NS / 4);
    if (!instance->is_up) {
        if (sl_rng_below(rng, 4) == 0)
            begin(instance);
        return;
    }
    switch (sl_rng_below(rng, 8)) {
    case 0: end_command(instance); break;
    case 1: want(instance, (unsigned)sl_rng_below(rng, KEYS)); break;
    case 2:
        if (sl_rng_below(rng, 10) < deaths)
            die(instance);
        break;
    case 3:
    case 4:
    case 5: listen(instance, 1 + (unsigned)sl_rng_below(rng, 8)); break;
    default: sl_act_tick(instance->act, world->now_ns, true); break;
    }
}

/* Messages are never older than the time in which an instance that subscribes waits. */
static void walk(unsigned seed, unsigned deaths, bool returns, unsigned steps)
{
    static struct world world;
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    memset(&world, 0, sizeof(world));
    for (unsigned i = 0; i < KEYS; i++)
        world.kept[i] = -1;
    for (unsigned i = 0; i < INSTANCES; i++) {
        world.instances[i].world = &world;
        snprintf(world.instances[i].name, sizeof(world.instances[i].name), "i%u", i);
        begin(&world.instances[i]);
    }
    for (unsigned i = 0; i < steps; i++) {
        step(&world, &rng, deaths);
        if (i % 2 == 0) /* a second at most */
            for (unsigned k = 0; k < INSTANCES; k++)
                if (world.instances[k].is_up)
                    listen(&world.instances[k], MESSAGES);
    }
    for (unsigned i = 0; i < KEYS; i++)
        for (unsigned k = 0; k < INSTANCES; k++)
            want(&world.instances[k], i);
    if (!world.instances[0].is_up)
        begin(&world.instances[0]);
    settle(&world, returns);
    for (unsigned i = 0; i < KEYS; i++) {
        if (world.runs[i] < 1 || world.runs[i] > 1 + world.deaths[i] || !has_said_done(&world, i))
            fail_msg("seed %u: key %u was run %u times, died %u times", seed, i, world.runs[i],
                     world.deaths[i]);
    }
    for (unsigned k = 0; k < INSTANCES; k++)
        if (world.instances[k].is_up)
            sl_act_free(world.instances[k].act);
}

static void each_action_is_done_once_by_one_of_three(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < WALKS; seed++)
        walk(seed, 0, true, 2000);
}

static void who_dies_is_replaced_and_nothing_is_lost(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < WALKS; seed++)
        walk(1000 + seed, 5, true, 2000);
}

static void who_stays_dead_is_replaced(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < WALKS; seed++)
        walk(2000 + seed, 8, false, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_action_is_done_once_by_one_of_three),
        cmocka_unit_test(who_dies_is_replaced_and_nothing_is_lost),
        cmocka_unit_test(who_stays_dead_is_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
