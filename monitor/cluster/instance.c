/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/instance.h"

#include "monitor/cluster/cases.h"
#include "monitor/cluster/collect.h"
#include "monitor/cluster/peers.h"
#include "monitor/cluster/serve.h"
#include "monitor/cluster/subscribe.h"

#include "core/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define JUDGE_MOST 20 /* the rules take a twentieth of the time at most */

struct sl_instance {
    struct sl_mon_config config;
    char name[96];
    void (*say)(const char *sentence);
    struct sl_cluster_model *model;
    struct sl_members *members;
    struct sl_collect *collect;
    struct sl_subscribe *subscribe; /* NULL: no broker is asked for */
    struct sl_peers *peers;         /* the same */
    struct sl_history *history;
    struct sl_book book;
    struct sl_cases *cases;
    struct sl_cluster_past past;
    struct sl_serve *serve;
    struct sl_cluster_view view;
    bool is_more;               /* to be done at once */
    uint64_t tick_ns, judge_ns; /* the next ones */
    uint64_t noted_version;
    uint64_t hears_ns; /* since when it is not deaf; 0: it is */
    char said[256];    /* of the members */
    char said_past[256];
};

static uint64_t now_ns(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * SECOND + (uint64_t)at.tv_nsec;
}

static int64_t wall_ms(void)
{
    struct timespec at;

    clock_gettime(CLOCK_REALTIME, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

int sl_instance_check(const struct sl_mon_config *config)
{
    int err = sl_members_check(config);

    if (err == 0)
        err = sl_mqtt_check(config);
    if (err != 0)
        return err;
    if (config->cluster_members[0] == '\0' && config->mqtt_broker[0] == '\0')
        return sl_fail(-EINVAL, "--cluster hears of no node: [cluster] members says whom to ask, "
                                "or [mqtt] broker where to subscribe");
    if (config->cluster_command[0] != '\0' && config->mqtt_broker[0] == '\0')
        return sl_fail(-EINVAL, "[cluster] command needs [mqtt] broker, which keeps what was done");
    if (config->cluster_instance[0] != '\0' && !sl_observe_is_node(config->cluster_instance))
        return sl_fail(-EINVAL,
                       "[cluster] instance is to be letters, digits, '.', '_' and '-', and is '%s'",
                       config->cluster_instance);
    return 0;
}

static void name_it(struct sl_instance *instance)
{
    struct sl_mon_config host = {.mqtt_node = ""};
    char name[SL_OBSERVE_NODE];

    if (instance->config.cluster_instance[0] != '\0') {
        snprintf(instance->name, sizeof(instance->name), "%s", instance->config.cluster_instance);
        return;
    }
    sl_observe_node(&host, name);
    snprintf(instance->name, sizeof(instance->name), "%.50s-%d", name, (int)getpid());
}

static void set_link(struct sl_instance *instance)
{
    struct sl_cluster_link *link = &instance->view.link;
    struct sl_subscribe_counts counts;
    struct sl_peers_counts peers;

    if (instance->subscribe == NULL)
        return;
    counts = sl_subscribe_counts(instance->subscribe);
    peers = sl_peers_counts(instance->peers);
    link->is_asked_for = true;
    link->is_up = sl_mqtt_connection(sl_subscribe_mqtt(instance->subscribe)) != 0;
    link->messages = counts.messages;
    link->refused = counts.refused;
    link->published = peers.published;
    link->actions = peers.commands;
    snprintf(link->where, sizeof(link->where), "%.120s", instance->config.mqtt_broker);
    sl_mqtt_why(sl_subscribe_mqtt(instance->subscribe), link->why, sizeof(link->why));
}

/* Whoever hears nobody is deaf, and nobody becomes silent by that; when it hears again, all have
 * their time first. */
static void set_silence(struct sl_instance *instance)
{
    struct sl_cluster_view *view = &instance->view;
    uint64_t silent = (uint64_t)instance->config.cluster_silent_s * SECOND;
    bool is_deaf = (view->link.is_asked_for && !view->link.is_up) ||
                   (view->collect.agents > 1 && view->collect.failing == view->collect.agents);

    if (is_deaf)
        instance->hears_ns = 0;
    else if (instance->hears_ns == 0)
        instance->hears_ns = view->now_ns;
    if (!is_deaf && view->now_ns - instance->hears_ns >= silent)
        view->silent_before_ns = view->now_ns - silent;
}

static void set_view(struct sl_instance *instance)
{
    instance->view.now_ns = now_ns();
    instance->view.now_ms = wall_ms();
    instance->view.collect = sl_collect_counts(instance->collect);
    instance->view.members_why = sl_members_why(instance->members);
    set_link(instance);
    set_silence(instance);
}

static void on_other(void *arg, const char *topic, const char *bytes, size_t len, bool is_retained)
{
    struct sl_instance *instance = arg;

    (void)is_retained;
    sl_peers_heard(instance->peers, topic, bytes, len);
}

static int open_broker(struct sl_instance *instance)
{
    const struct sl_subscribe_options options = {.config = &instance->config,
                                                 .instance = instance->name,
                                                 .model = instance->model,
                                                 .other = on_other,
                                                 .arg = instance};
    int err;

    if (instance->config.mqtt_broker[0] == '\0')
        return 0;
    err = sl_peers_new(&instance->config, instance->name, instance->say, &instance->peers);
    return err == 0 ? sl_subscribe_open(&options, &instance->subscribe) : err;
}

static int open_cases(struct sl_instance *instance)
{
    const struct sl_cases_options options = {
        .folder = instance->config.cluster_cases,
        .bytes = (uint64_t)instance->config.cluster_cases_bytes,
        .count = (unsigned)instance->config.cluster_cases_count,
        .say = instance->say};

    return sl_cases_new(&options, &instance->cases);
}

int sl_instance_open(const struct sl_instance_options *options, struct sl_instance **out)
{
    struct sl_instance *instance = calloc(1, sizeof(*instance));
    struct sl_cluster_limits limits = {.nodes = (unsigned)options->config->cluster_nodes,
                                       .bytes = (uint64_t)options->config->cluster_bytes};
    int err = sl_instance_check(options->config);

    if (instance == NULL)
        return sl_fail(-ENOMEM, "no memory for an instance");
    instance->config = *options->config;
    instance->say = options->say;
    name_it(instance);
    if (err == 0)
        err = sl_cluster_model_new(&limits, &instance->model);
    if (err == 0)
        err = sl_history_new(&instance->history);
    if (err == 0)
        err = sl_members_new(&instance->config, &instance->members);
    if (err == 0)
        err = sl_collect_new(&instance->config, instance->model, &instance->collect);
    if (err == 0)
        err = open_cases(instance);
    if (err == 0)
        err = open_broker(instance);
    if (err == 0) {
        instance->view = (struct sl_cluster_view){.instance = instance->name,
                                                  .version = options->version,
                                                  .model = instance->model,
                                                  .book = &instance->book,
                                                  .history = instance->history,
                                                  .cases = instance->cases,
                                                  .begun_ns = now_ns()};
        set_view(instance);
        err = sl_serve_new(instance->config.cluster_http, &instance->view, &instance->serve);
    }
    if (err != 0) {
        sl_instance_close(instance);
        return err;
    }
    *out = instance;
    return 0;
}

void sl_instance_close(struct sl_instance *instance)
{
    if (instance == NULL)
        return;
    sl_serve_free(instance->serve);
    sl_subscribe_close(instance->subscribe);
    sl_peers_free(instance->peers);
    sl_collect_free(instance->collect);
    sl_members_free(instance->members);
    sl_history_free(instance->history);
    sl_cases_free(instance->cases);
    sl_cluster_past_fini(&instance->past);
    sl_book_fini(&instance->book);
    sl_cluster_model_free(instance->model);
    free(instance);
}

unsigned sl_instance_fds(const struct sl_instance *instance, int *fds, unsigned most)
{
    const int all[] = {sl_serve_fd(instance->serve), sl_collect_fd(instance->collect),
                       instance->subscribe != NULL ? sl_subscribe_fd(instance->subscribe) : -1};
    unsigned count = 0;

    for (unsigned i = 0; i < SL_ARRAY_LEN(all) && count < most; i++)
        if (all[i] >= 0)
            fds[count++] = all[i];
    return count;
}

int sl_instance_wait_ms(struct sl_instance *instance)
{
    uint64_t now = now_ns();
    int ms = sl_collect_wait_ms(instance->collect, now);
    int tick = instance->tick_ns <= now ? 0 : (int)((instance->tick_ns - now) / 1000000 + 1);

    return instance->is_more ? 0 : ms >= 0 && ms < tick ? ms : tick;
}

/* ---- turns ---- */

static void look_at_members(struct sl_instance *instance, uint64_t now)
{
    const char *why;

    if (sl_members_tick(instance->members, now) &&
        sl_collect_set(instance->collect, sl_members_list(instance->members), now) != 0)
        instance->say(sluice_last_error());
    why = sl_members_why(instance->members);
    if (strcmp(why, instance->said) != 0 && why[0] != '\0')
        instance->say(why);
    snprintf(instance->said, sizeof(instance->said), "%s", why);
}

static void note_ports(struct sl_instance *instance)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(instance->model, &count);

    if (sl_cluster_version(instance->model) == instance->noted_version)
        return;
    instance->noted_version = sl_cluster_version(instance->model);
    for (unsigned i = 0; i < count; i++)
        sl_history_note(instance->history, nodes[i]);
}

static void read_past(struct sl_instance *instance)
{
    if (sl_cluster_past_read(&instance->past, instance->config.cluster_history) >= 0) {
        instance->said_past[0] = '\0';
        return;
    }
    if (strncmp(instance->said_past, sluice_last_error(), sizeof(instance->said_past) - 1) != 0)
        instance->say(sluice_last_error());
    snprintf(instance->said_past, sizeof(instance->said_past), "%s", sluice_last_error());
}

static void judge(struct sl_instance *instance)
{
    const struct sl_cluster_judge options = {
        .silent_before_ns = instance->view.silent_before_ns,
        .now_ms = instance->view.now_ms,
        .stall_ms = instance->config.cluster_stall_s * 1000,
        .false_isolations = (double)instance->config.cluster_false_isolations / 1e6,
        .history = &instance->past};
    struct sl_cluster_verdicts verdicts;
    uint64_t begun = now_ns(), took;
    int err = sl_cluster_judge(instance->model, &options, &verdicts);

    if (err == 0)
        err = sl_book_update(&instance->book, &verdicts, begun, instance->view.now_ms,
                             (uint64_t)instance->config.cluster_confirm_s * SECOND, NULL, NULL);
    if (err != 0) {
        instance->say(sluice_last_error());
        sl_cluster_verdicts_free(&verdicts);
    }
    took = now_ns() - begun;
    instance->view.judged_ns = took;
    if (err == 0)
        sl_cases_tick(instance->cases, instance->model, &options, &instance->book);
    instance->judge_ns = begun + (took * JUDGE_MOST > SECOND ? took * JUDGE_MOST : SECOND);
}

static void tick(struct sl_instance *instance, uint64_t now)
{
    instance->tick_ns = now + SECOND / 4;
    look_at_members(instance, now);
    if (now >= instance->judge_ns) {
        note_ports(instance);
        read_past(instance);
        judge(instance);
        set_view(instance);
        sl_serve_tick(instance->serve);
    }
    if (instance->peers != NULL)
        sl_peers_tick(instance->peers, sl_subscribe_mqtt(instance->subscribe), &instance->book,
                      now);
}

void sl_instance_turn(struct sl_instance *instance)
{
    uint64_t now = now_ns();

    instance->is_more = false;
    sl_collect_turn(instance->collect, now);
    set_view(instance);
    if (instance->subscribe != NULL &&
        sl_subscribe_turn(instance->subscribe, now, instance->view.now_ms))
        instance->is_more = true;
    if (sl_serve_turn(instance->serve))
        instance->is_more = true;
    if (now >= instance->tick_ns)
        tick(instance, now);
}

bool sl_instance_is_fresh(const struct sl_instance *instance, char *why, size_t cap)
{
    const struct sl_cluster_view *view = &instance->view;

    if (view->link.is_asked_for && !view->link.is_up) {
        snprintf(why, cap, "the broker: %s", view->link.why);
        return false;
    }
    if (view->collect.agents == 0 || view->collect.failing < view->collect.agents) {
        snprintf(why, cap, "%u agents are asked", view->collect.agents);
        return true;
    }
    snprintf(why, cap, "no agent answers");
    return false;
}
