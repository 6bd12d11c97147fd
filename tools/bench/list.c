/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what can be used here and, for the rest, why not. */
#include "list.h"

#include "collectives/reduce.h"
#include "collectives/schedule.h"
#include "core/err.h"
#include "core/transport.h"
#include "launch/launch.h"

#include <sluice/sluice.h>

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX 32

static const char *environment(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

static void list_launcher(FILE *out, const struct sl_config *config)
{
    struct sl_identity who = {0};

    if (sl_identify(config, environment, NULL, &who) != 0)
        fprintf(out, "launcher     unclear: %s\n", sluice_last_error());
    else if (who.rank < 0)
        fprintf(out, "launcher     %s; it knows rank and size\n", who.launcher);
    else
        fprintf(out, "launcher     %s; rank %d of %d\n", who.launcher, who.rank, who.size);
}

static void list_cache(FILE *out, const char *label, int name)
{
    long bytes = sysconf(name);

    if (bytes > 0)
        fprintf(out, ", %s %ld KiB", label, bytes / 1024);
}

static void list_machine(FILE *out)
{
    cpu_set_t set;
    int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;

    fprintf(out, "cores        %d of %ld usable", usable, sysconf(_SC_NPROCESSORS_ONLN));
    list_cache(out, "L1d", _SC_LEVEL1_DCACHE_SIZE);
    list_cache(out, "L2", _SC_LEVEL2_CACHE_SIZE);
    list_cache(out, "L3", _SC_LEVEL3_CACHE_SIZE);
    fprintf(out, "\n");
}

static void list_transport(FILE *out, const struct sl_transport_ops *ops,
                           const struct sl_config *config)
{
    struct sl_device devices[DEVICES_MAX];
    size_t count = 0;
    int err = ops->probe(config, devices, DEVICES_MAX, &count);

    if (err != 0) {
        fprintf(out, "transport    %-8s out: %s\n", ops->name, sluice_last_error());
        return;
    }
    for (size_t i = 0; i < count && i < DEVICES_MAX; i++) {
        fprintf(out, "transport    %-8s %-12s %s", ops->name, devices[i].name, devices[i].detail);
        if (devices[i].speed > 0)
            fprintf(out, ", %.3g Gbit/s", (double)devices[i].speed * 8e-9);
        fprintf(out, "\n");
    }
    if (count > DEVICES_MAX)
        fprintf(out, "transport    %-8s and %zu more devices\n", ops->name, count - DEVICES_MAX);
}

static void list_kernels(FILE *out, const struct sl_config *config)
{
    static const char *const names[] = {"avx512", "avx2", "c"};
    const struct sl_kernels *chosen = NULL, *kernels;
    int err = sl_kernels_select(config->kernel, &chosen);

    if (err != 0)
        fprintf(out, "kernel       SLUICE_KERNEL cannot be used: %s\n", sluice_last_error());
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++) {
        if (sl_kernels_select(names[i], &kernels) != 0)
            fprintf(out, "kernel       %-8s out: %s\n", names[i], sluice_last_error());
        else
            fprintf(out, "kernel       %-8s %s\n", names[i],
                    kernels == chosen ? "in use" : "available");
    }
}

static void list_algorithms(FILE *out)
{
    for (int coll = 0; coll < SL_COLL_COUNT; coll++) {
        for (const struct sl_algo *const *at = sl_algos; *at != NULL; at++) {
            const struct sl_algo *algo = *at;

            if ((algo->colls & 1u << coll) == 0)
                continue;
            fprintf(out, "algorithm    %-15s %-12s %s%s\n", sl_coll_name((enum sl_coll)coll),
                    algo->name, algo->needs_windows ? "(shared memory) " : "", algo->source);
        }
    }
}

void sb_list(FILE *out, const struct sl_config *config)
{
    fprintf(out, "sluice       %s\n", sluice_version_string());
    list_launcher(out, config);
    list_machine(out);
    for (const struct sl_transport_ops *const *ops = sl_transports(); *ops != NULL; ops++)
        list_transport(out, *ops, config);
    list_kernels(out, config);
    list_algorithms(out);
}
