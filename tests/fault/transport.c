/* SPDX-License-Identifier: Apache-2.0 */
/* The transports of fault runs: what ranks need to use them, and which faults they can have. */
#include "tests/fault/fault.h"

#include "tcp/engine.h"

#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *no_uring(void)
{
    const struct sl_tcp_engine_ops *ops;
    void *engine;

    if (sl_tcp_engine_open(SL_TCP_ENGINE_URING, &ops, &engine) != 0)
        return sluice_last_error();
    ops->close(engine);
    return NULL;
}

static const char *no_dpdk(void)
{
    const char *dir = getenv("SLUICE_MODULES_DIR");
    char module[512];

    snprintf(module, sizeof(module), "%s/sluice-dpdk.so", dir != NULL ? dir : ".");
    return access(module, R_OK) == 0 ? NULL
                                     : "SLUICE_MODULES_DIR names no folder of sluice-dpdk.so";
}

/* Weights in the order of enum fault_kind. Shared memory loses no packets, and what nft drops and
 * resets is TCP, which is not what dpdk's data goes by. */
static const struct fault_transport transports[] = {
    {"shm", "shm", "auto", {8, 2, 4, 0, 2, 2, 1, 1, 0, 0}, NULL},
    {"epoll", "tcp", "epoll", {6, 2, 4, 2, 2, 2, 1, 1, 0, 0}, NULL},
    {"uring", "tcp", "uring", {6, 2, 4, 2, 2, 2, 1, 1, 0, 0}, no_uring},
    {"dpdk", "dpdk", "auto", {6, 2, 0, 0, 2, 2, 1, 1, 3, 2}, no_dpdk},
};

const struct fault_transport *fault_transport(const char *name)
{
    for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
        if (strcmp(transports[i].name, name) == 0)
            return &transports[i];
    fprintf(stderr, "there is no transport '%s'\n", name);
    exit(2);
}

/* ---- the folder of memif's sockets ---- */

bool fault_has_ports(const struct fault_run *run)
{
    return strcmp(run->transport->transport, "dpdk") == 0;
}

const char *fault_folder_make(struct fault_run *run)
{
    snprintf(run->dir, sizeof(run->dir), "/tmp/sluice-fault-XXXXXX");
    return !fault_has_ports(run) || mkdtemp(run->dir) != NULL ? NULL : "no folder in /tmp";
}

void fault_ports(const struct fault_run *run, int rank)
{
    char list[512];
    int at = 0;

    for (int rail = 0; rail < run->rails; rail++) {
        char dir[64];

        snprintf(dir, sizeof(dir), "%s/%c", run->dir, 'a' + rail);
        (void)mkdir(dir, 0700);
        at += snprintf(list + at, sizeof(list) - (size_t)at, "%smesh:%s@rank=%d@ranks=%d",
                       rail > 0 ? " " : "", dir, rank, run->ranks);
    }
    setenv("SLUICE_DPDK_PORTS", list, 1);
}

void fault_folder_hide(const struct fault_run *run)
{
    char from[64], to[64];

    snprintf(from, sizeof(from), "%s/a", run->dir);
    snprintf(to, sizeof(to), "%s/-", run->dir);
    (void)rename(from, to);
}

/* Who was killed, or does not find them. */
static bool leaves_sockets(const struct fault_run *run, int rank, int rail)
{
    return (run->kind == FAULT_KILL && rank == run->victim) ||
           (run->kind == FAULT_GONE && rail == 0);
}

bool fault_folder_remove(struct fault_run *run, char *why, size_t cap)
{
    bool is_clean = true;
    char hidden[64], shown[64];

    snprintf(hidden, sizeof(hidden), "%s/-", run->dir);
    snprintf(shown, sizeof(shown), "%s/a", run->dir);
    (void)rename(hidden, shown);
    for (int rail = 0; rail < run->rails; rail++)
        for (int rank = 0; rank < run->ranks; rank++) {
            char path[96];

            snprintf(path, sizeof(path), "%s/%c/%d", run->dir, 'a' + rail, rank);
            if (unlink(path) == 0 && !leaves_sockets(run, rank, rail)) {
                snprintf(why, cap, "rank %d left the socket %s", rank, path);
                is_clean = false;
            }
        }
    for (int rail = 0; rail < run->rails; rail++) {
        char path[96];

        snprintf(path, sizeof(path), "%s/%c", run->dir, 'a' + rail);
        if (rmdir(path) != 0 && is_clean) {
            snprintf(why, cap, "something was left in %s", path);
            is_clean = false;
        }
    }
    (void)rmdir(run->dir);
    return is_clean;
}
