/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose messages tests make up. */
#include "net_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define LATENCY 3e-6
#define PER_BYTE (1 / 45e9) /* of 400 Gbit/s */

static struct sl_verdicts verdicts;

static uint32_t text(struct sl_job *job, const char *string)
{
    return sl_job_text(job, string, strlen(string));
}

void net_begin(struct net *net, uint32_t ranks, uint64_t seed)
{
    *net = (struct net){.job = sl_job_new(), .noise = 0.02, .messages = 2000, .size = 1 << 20};
    sl_rng_init(&net->rng, seed);
    assert_non_null(net->job);
    assert_int_equal(sl_job_add_rank(net->job, ranks - 1), 0);
}

void net_end(struct net *net)
{
    sl_job_free(net->job);
    net->job = NULL;
    sl_verdicts_free(&verdicts);
}

void net_host(struct net *net, uint32_t rank, const char *host)
{
    net->job->ranks[rank].host = text(net->job, host);
}

void net_port(struct net *net, const char *host, const char *device, const char *leaf)
{
    struct sl_job_port port = {.host = text(net->job, host),
                               .device = text(net->job, device),
                               .leaf = text(net->job, leaf)};

    assert_int_equal(sl_job_add_port(net->job, &port), 0);
}

/* Between -1 and 1, more often near 0. */
static double chance(struct sl_rng *rng)
{
    double sum = 0;

    for (unsigned i = 0; i < 3; i++)
        sum += (double)sl_rng_below(rng, 2001) / 1000 - 1;
    return sum / 3;
}

void net_edge(struct net *net, uint32_t src, uint32_t dst)
{
    for (uint32_t path = 0; path < (net->paths > 0 ? net->paths : 1); path++) {
        double factor = net->factor != NULL ? net->factor(net->context, src, dst, path) : 1;
        double each = LATENCY + (double)net->size * PER_BYTE * factor;
        struct sl_job_edge edge = {
            .src = src, .dst = dst, .messages = net->messages, .bytes = net->messages * net->size};
        char name[16];

        snprintf(name, sizeof(name), "mlx5_%u", path);
        edge.path = net->paths > 0 ? text(net->job, name) : 0;
        edge.wait_s[SL_JOB_WAIT_WIRE] =
            (double)net->messages * each * (1 + net->noise * chance(&net->rng));
        /* Waits that are nobody's path: any rule that adds them up goes wrong. */
        edge.wait_s[SL_JOB_WAIT_GPU] =
            (double)net->messages * each * (double)sl_rng_below(&net->rng, 20);
        assert_int_equal(sl_job_add_edge(net->job, &edge), 0);
    }
}

void net_ring(struct net *net, uint32_t step)
{
    uint32_t ranks = net->job->rank_count;

    for (uint32_t r = 0; r < ranks; r++)
        net_edge(net, r, (r + step) % ranks);
}

void net_all_to_all(struct net *net)
{
    for (uint32_t src = 0; src < net->job->rank_count; src++)
        for (uint32_t dst = 0; dst < net->job->rank_count; dst++)
            if (src != dst)
                net_edge(net, src, dst);
}

static void add_text(const struct sl_job *job, const struct sl_verdict *verdict, char *out,
                     size_t cap)
{
    const struct sl_object *object = &verdict->accused;
    const char *name = sl_job_string(job, object->name);
    size_t len = strlen(out);

    len += (size_t)snprintf(out + len, cap - len, "%s%s ", len > 0 ? ", " : "",
                            sl_verdict_class_name(verdict->cls));
    if (object->kind == SL_OBJECT_LINK)
        len += (size_t)snprintf(out + len, cap - len, "%u>%u", object->a, object->b);
    else if (object->a != SL_JOB_NONE)
        len += (size_t)snprintf(out + len, cap - len, "%u", object->a);
    if (name[0] != '\0')
        len += (size_t)snprintf(out + len, cap - len, "%s%s", object->a != SL_JOB_NONE ? " " : "",
                                name);
    if (verdict->other_count > 0)
        snprintf(out + len, cap - len, " +%u", verdict->other_count);
}

const char *net_judge(struct net *net)
{
    static const struct sl_comm_options options = SL_COMM_OPTIONS;
    static char out[4096];

    out[0] = '\0';
    sl_verdicts_free(&verdicts);
    assert_int_equal(sl_job_seal(net->job), 0);
    assert_int_equal(sl_comm_find(net->job, &options, &verdicts), 0);
    sl_verdicts_sort(&verdicts);
    for (uint32_t i = 0; i < verdicts.count; i++) {
        if (strlen(out) < sizeof(out) - 512)
            add_text(net->job, &verdicts.list[i], out, sizeof(out));
        for (uint32_t k = 0; k < verdicts.list[i].evidence_count && i < 8; k++)
            printf("# %.2f %s\n", verdicts.list[i].probability, verdicts.list[i].evidence[k]);
    }
    return out;
}

const struct sl_verdicts *net_verdicts(void)
{
    return &verdicts;
}

bool net_says(const char *words)
{
    for (uint32_t i = 0; i < verdicts.count; i++)
        for (uint32_t k = 0; k < verdicts.list[i].evidence_count; k++)
            if (strstr(verdicts.list[i].evidence[k], words) != NULL)
                return true;
    return false;
}
