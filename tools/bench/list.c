/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what can be used here and, for the rest, why not. */
#include "list.h"

#include "kernels/reduce.h"
#include "schedules/schedule.h"
#include "core/cache.h"
#include "core/err.h"
#include "core/module.h"
#include "core/registry.h"
#include "core/transport.h"
#include "launch/launch.h"
#include "report.h"

#include <sluice/sluice.h>

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX 64
#define TRANSPORTS_MAX (2 * SL_TRANSPORTS_MAX)

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
        fprintf(out, "launcher     %s; it knows rank and size\n", sl_launcher_name(who.launcher));
    else
        fprintf(out, "launcher     %s; rank %d of %d\n", sl_launcher_name(who.launcher), who.rank,
                who.size);
}

static void list_cache(FILE *out, const char *label, long bytes)
{
    if (bytes > 0)
        fprintf(out, ", %s %ld KiB", label, bytes / 1024);
}

static void list_machine(FILE *out)
{
    cpu_set_t set;
    int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;

    fprintf(out, "cores        %d of %ld usable", usable, sysconf(_SC_NPROCESSORS_ONLN));
    list_cache(out, "L1d", sysconf(_SC_LEVEL1_DCACHE_SIZE));
    list_cache(out, "L2", sysconf(_SC_LEVEL2_CACHE_SIZE));
    list_cache(out, "last", (long)sl_cache_last_level());
    fprintf(out, "\n");
}

/* Behind the columns of a device. */
static void list_more(FILE *out, const char *text)
{
    while (*text != '\0') {
        int len = (int)strcspn(text, "\n");

        fprintf(out, "%35s%.*s\n", "", len, text);
        text += len + (text[len] == '\n');
    }
}

static void list_device(FILE *out, const char *transport, const struct sl_device *device)
{
    char detail[sizeof(device->detail) + 32];

    snprintf(detail, sizeof(detail), "%s", device->detail);
    if (device->speed > 0)
        snprintf(detail + strlen(detail), 32, ", %.3g Gbit/s", (double)device->speed * 8e-9);
    if (device->why[0] == '\0') {
        fprintf(out, "transport    %-8s %-12s %s\n", transport, device->name, detail);
    } else {
        fprintf(out, "transport    %-8s %-12s out: %s\n", transport, device->name, device->why);
        list_more(out, detail);
    }
    list_more(out, device->more);
}

static void list_transport(FILE *out, const struct sb_transport *transport)
{
    if (transport->err != 0) {
        fprintf(out, "transport    %-8s out: %s\n", transport->name, transport->why);
        return;
    }
    for (size_t i = 0; i < transport->shown; i++)
        list_device(out, transport->name, &transport->devices[i]);
    if (transport->count > transport->shown)
        fprintf(out, "transport    %-8s and %zu more devices\n", transport->name,
                transport->count - transport->shown);
}

/* Modules that could not be loaded. */
static size_t find_refused(struct sb_transport *list, size_t cap)
{
    const char *name, *why;
    unsigned n = 0;

    for (; n < cap && (name = sl_module_refused(n, &why)) != NULL; n++) {
        list[n] = (struct sb_transport){.name = name, .err = -ENOTSUP};
        snprintf(list[n].why, sizeof(list[n].why), "%s", why);
    }
    return n;
}

/* Asks every backend. The devices are owned by the caller. */
static size_t find_transports(const struct sl_config *config, struct sb_transport *list, size_t cap)
{
    const struct sl_transport_ops *const *ops = sl_transports();
    size_t n = 0;

    for (; *ops != NULL && n < cap; ops++, n++) {
        struct sb_transport *at = &list[n];

        *at = (struct sb_transport){.name = (*ops)->name,
                                    .devices = calloc(DEVICES_MAX, sizeof(*at->devices))};
        at->err = at->devices == NULL ? sl_fail(-ENOMEM, "no memory to list devices")
                                      : (*ops)->probe(config, at->devices, DEVICES_MAX, &at->count);
        if (at->err != 0)
            snprintf(at->why, sizeof(at->why), "%s", sluice_last_error());
        else
            at->shown = at->count < DEVICES_MAX ? at->count : DEVICES_MAX;
    }
    return n + find_refused(list + n, cap - n);
}

static void list_kernels(FILE *out, const struct sl_config *config)
{
    static const char *const names[] = {
        [SL_KERNEL_AVX512] = "avx512",
        [SL_KERNEL_AVX2] = "avx2",
        [SL_KERNEL_NEON] = "neon",
        [SL_KERNEL_C] = "c",
    };
    const struct sl_kernels *chosen = NULL, *kernels;
    int err = sl_kernels_select(config->kernel, &chosen);

    if (err != 0)
        fprintf(out, "kernel       SLUICE_KERNEL cannot be used: %s\n", sluice_last_error());
    for (size_t i = SL_KERNEL_AVX512; i < SL_ARRAY_LEN(names); i++) {
        if (sl_kernels_select((enum sl_kernel)i, &kernels) != 0)
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

int sb_list(FILE *out, const struct sl_config *config, const char *json)
{
    struct sb_transport transports[TRANSPORTS_MAX];
    size_t count = find_transports(config, transports, TRANSPORTS_MAX);
    int err = 0;

    if (json != NULL)
        err = sb_json_write_list(json, sluice_version_string(), transports, count);
    /* "--json -" is for other programs: the text would be in the way. */
    if (json == NULL || strcmp(json, "-") != 0) {
        fprintf(out, "sluice       %s\n", sluice_version_string());
        list_launcher(out, config);
        list_machine(out);
        for (size_t i = 0; i < count; i++)
            list_transport(out, &transports[i]);
        list_kernels(out, config);
        list_algorithms(out);
    }
    for (size_t i = 0; i < count; i++)
        free(transports[i].devices);
    return err;
}
