/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor finds, and the looks at the kernel and its files of which it consists. */
#ifndef SLUICE_CTL_DOCTOR_H
#define SLUICE_CTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

/* good; works without it, with less seen; wrong: it is to be seen to */
enum sc_found { SC_WELL, SC_LESS, SC_WRONG };

struct sc_finding {
    const char *name;
    enum sc_found found;
    char text[512];   /* what is there */
    char advice[256]; /* what to install or allow; "": nothing */
};

/* root: "" or a folder that has another host's /proc, /sys and /dev. pid: of the agent; 0: none. */
struct sc_host {
    const char *root;
    long pid;
};

/* Each fills one in, but for its name. */
void sc_look_btf(const struct sc_host *host, struct sc_finding *out);
void sc_look_caps(const struct sc_host *host, struct sc_finding *out);
void sc_look_lockdown(const struct sc_host *host, struct sc_finding *out);
void sc_look_kmsg(const struct sc_host *host, struct sc_finding *out);
void sc_look_rdma(const struct sc_host *host, struct sc_finding *out);
void sc_look_tracefs(const struct sc_host *host, struct sc_finding *out);
void sc_look_cgroup(const struct sc_host *host, struct sc_finding *out);
void sc_look_pressure(const struct sc_host *host, struct sc_finding *out);
void sc_look_nvml(const struct sc_host *host, struct sc_finding *out);
/* The folder that the agent's store is, or would be, in. */
void sc_look_store(const char *path, bool is_running, struct sc_finding *out);

void sc_find(struct sc_finding *out, enum sc_found found, const char *advice, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
