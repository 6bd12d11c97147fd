/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroups of processes that are watched: CPU quotas, memory limits and memory pressure, of
 * version 1, 2, or both at once. Each cgroup is read once a period from descriptors that stay open,
 * however many processes are in it; so are those above it, whose limits hold for it too.
 */
#ifndef SL_MONITOR_CGROUP_H
#define SL_MONITOR_CGROUP_H

#include "monitor/process.h"

struct sl_mon_cgroups;
struct sl_mon_membership; /* of one process */

/* root: "/sys/fs/cgroup"; proc: "/proc", for the pressure of the host. -ENOMEM. */
int sl_mon_cgroups_open(const char *root, const char *proc, struct sl_mon_cgroups **out);
void sl_mon_cgroups_close(struct sl_mon_cgroups *cgroups);
/* A new period: what is asked for from now on is read again. */
void sl_mon_cgroups_begin(struct sl_mon_cgroups *cgroups);

/* By the text of /proc/PID/cgroup. Cgroups that cannot be read, or for which there is no room, are
 * left out. *membership: of the same process before, or NULL; where the text is another one it
 * changes. -ENOMEM. */
int sl_mon_membership_set(struct sl_mon_cgroups *cgroups, struct sl_mon_membership **membership,
                          const char *text);
void sl_mon_membership_free(struct sl_mon_cgroups *cgroups, struct sl_mon_membership *membership);

/* Fills in quotas, memory and stalls of a reading. */
void sl_mon_membership_read(struct sl_mon_cgroups *cgroups,
                            const struct sl_mon_membership *membership,
                            struct sl_mon_process_reading *out);

#endif
