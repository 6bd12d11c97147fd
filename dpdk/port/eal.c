/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts EAL. It sets the affinity of the thread that starts it, and does not give it back, so that
 * is a thread of its own, which ends. EAL's first lcore may run wherever the process may, so that
 * its control threads stay within the process's affinity and bind nothing.
 *
 * fork(): the child has none of EAL's threads and the parent's descriptors, so it must not use
 * ports. EAL cannot be started a second time in a process, nor in a child of one that has it.
 */
#include "core/err.h"
#include "core/fork.h"
#include "core/log.h"
#include "dpdk/port/eal.h"
#include "dpdk/port/huge.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#define WORDS_MAX 40
#define MEMORY_MIB_USUAL 256
#define MEMORY_MIB_PORT 64 /* a NIC's buffers for frames of 9,000 bytes take 38 */
#define MEMORY_MIB_LEAST 64

struct start {
    char words[WORDS_MAX][SL_DPDK_NAME_MAX + SL_DPDK_ARGS_MAX];
    int count;
    int result, error;
};

static bool is_started;
static uint64_t started_life; /* of the process that started it */
/* EAL did not start. It does not clean up then, and would say the next time that it runs. */
static int failed_code;
static char failed_why[320];
static pthread_key_t thread_key;
_Thread_local bool sl_dpdk_thread_entered;

static void add(struct start *start, const char *word)
{
    sl_assert(start->count < WORDS_MAX);
    snprintf(start->words[start->count++], sizeof(start->words[0]), "%s", word);
}

/* "0@(0,1,5)": lcore 0 on any CPU that this process may use. */
static int add_lcore(struct start *start)
{
    char text[SL_DPDK_NAME_MAX + SL_DPDK_ARGS_MAX] = "0@(";
    cpu_set_t set;
    unsigned count = 0;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        CPU_ZERO(&set); /* more CPUs than fit: as if none of the first */
    for (unsigned cpu = 0; cpu < RTE_MAX_LCORE; cpu++) {
        if (CPU_ISSET(cpu, &set) &&
            sl_text_add(text, sizeof(text) - 1, "%s%u", count > 0 ? "," : "", cpu))
            count++;
    }
    if (count == 0)
        return sl_fail(-ENOTSUP,
                       "DPDK knows CPUs 0 to %d, and this process may use none of them: change its "
                       "affinity (taskset)",
                       RTE_MAX_LCORE - 1);
    sl_text_add(text, sizeof(text), ")");
    add(start, "--lcores");
    add(start, text);
    return 0;
}

static void add_memory(struct start *start, uint32_t mib, size_t ports)
{
    char text[16];

    if (mib == 0)
        mib = ports * MEMORY_MIB_PORT > MEMORY_MIB_USUAL ? (uint32_t)ports * MEMORY_MIB_PORT
                                                         : MEMORY_MIB_USUAL;
    if (sl_dpdk_huge_pages_free((uint64_t)mib << 20)) {
        add(start, "--in-memory");
        add(start, "--single-file-segments");
        return;
    }
    /* Taken page by page as it is touched. */
    snprintf(text, sizeof(text), "%u", mib > MEMORY_MIB_LEAST ? mib : MEMORY_MIB_LEAST);
    add(start, "--no-huge");
    add(start, "--no-shconf");
    add(start, "-m");
    add(start, text);
}

/* The devices on PCI that EAL may look at: those that were named. Otherwise it would take whatever
 * has a driver, this machine's own NIC as well. */
static void add_devices(struct start *start, const struct sl_dpdk_spec *specs, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        char text[SL_DPDK_NAME_MAX + SL_DPDK_ARGS_MAX];

        if (specs[i].kind != SL_DPDK_PCI)
            continue;
        any = true;
        snprintf(text, sizeof(text), "%s%s%s", specs[i].name, specs[i].args[0] != '\0' ? "," : "",
                 specs[i].args);
        add(start, "-a");
        add(start, text);
    }
    if (any)
        return; /* and its driver says which addresses it needs */
    add(start, "--no-pci");
    add(start, "--iova-mode=va");
}

static void *run(void *arg)
{
    struct start *start = arg;
    char *argv[WORDS_MAX + 1];

    for (int i = 0; i < start->count; i++)
        argv[i] = start->words[i];
    argv[start->count] = NULL;
    start->result = rte_eal_init(start->count, argv);
    start->error = rte_errno;
    return NULL;
}

/* On a thread of its own that takes no signal of the program. EAL's threads inherit that. */
static int run_apart(struct start *start)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&thread, NULL, run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0)
        return sl_fail(-err, "cannot make a thread that starts DPDK: %s", strerror(err));
    pthread_join(thread, NULL);
    return 0;
}

static void leave_thread(void *arg)
{
    (void)arg;
    rte_thread_unregister();
}

void sl_dpdk_thread_enter_slow(void)
{
    sl_dpdk_thread_entered = true;
    if (rte_lcore_id() != LCORE_ID_ANY)
        return;
    /* There are RTE_MAX_LCORE of them. A thread without works too, only slower. */
    if (rte_thread_register() == 0)
        pthread_setspecific(thread_key, &thread_key);
}

static int check_result(const struct start *start)
{
    char first[200];

    if (start->result >= 0)
        return 0;
    sl_dpdk_log_first(first, sizeof(first));
    failed_code = start->error > 0 ? -start->error : -ENOTSUP;
    snprintf(failed_why, sizeof(failed_why), "%s%s%s", rte_strerror(start->error),
             first[0] != '\0' ? "; " : "", first);
    return sl_fail(failed_code, "DPDK could not start in this process: %s", failed_why);
}

/* Nothing but what is asked for. */
static int start_own(const struct sl_dpdk_port_settings *settings, const struct sl_dpdk_spec *specs,
                     size_t count)
{
    struct start *start = calloc(1, sizeof(*start));

    if (start == NULL)
        return sl_fail(-ENOMEM, "no memory to start DPDK");
    add(start, "sluice");
    add_memory(start, settings->memory_mib, count);
    add_devices(start, specs, count);
    add(start, "--no-telemetry");
    int err = add_lcore(start);
    if (err == 0)
        err = sl_dpdk_log_start();
    if (err == 0)
        err = run_apart(start);
    if (err == 0)
        err = check_result(start);
    free(start);
    return err;
}

/* EAL knows of no processor before it is started. */
static bool is_the_programs(void)
{
    if (rte_lcore_count() == 0)
        return false;
    sl_info("dpdk", "EAL was started by the program, and is used as it is, with its log");
    return true;
}

int sl_dpdk_eal_start(const struct sl_dpdk_port_settings *settings,
                      const struct sl_dpdk_spec *specs, size_t count)
{
    if (is_started && !sl_fork_same(started_life))
        return sl_fail_text(-ENOTSUP, "DPDK was started by the parent of this process, and cannot "
                                      "be used in its child: start DPDK after fork()");
    if (is_started)
        return 0;
    if (failed_code != 0)
        return sl_fail(failed_code,
                       "DPDK did not start in this process, and can be tried again only in a new "
                       "one: %s",
                       failed_why);
    int err = is_the_programs() ? 0 : start_own(settings, specs, count);
    if (err == 0)
        err = -pthread_key_create(&thread_key, leave_thread);
    is_started = err == 0;
    started_life = sl_fork_life();
    return err;
}
