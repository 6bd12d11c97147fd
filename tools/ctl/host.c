/* SPDX-License-Identifier: Apache-2.0 */
/* The looks of sluicectl doctor at this host. */
#include "tools/ctl/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void sc_find(struct sc_finding *out, enum sc_found found, const char *advice, const char *fmt, ...)
{
    va_list args;

    out->found = found;
    snprintf(out->advice, sizeof(out->advice), "%s", advice);
    va_start(args, fmt);
    vsnprintf(out->text, sizeof(out->text), fmt, args);
    va_end(args);
}

static void path_of(const struct sc_host *host, const char *path, char *out, size_t cap)
{
    snprintf(out, cap, "%s%s", host->root, path);
}

static bool can_read(const struct sc_host *host, const char *path)
{
    char full[512];

    path_of(host, path, full, sizeof(full));
    return access(full, R_OK) == 0;
}

/* Its first line; false: it cannot be read. */
static bool read_line(const struct sc_host *host, const char *path, char *out, size_t cap)
{
    char full[512];
    FILE *file;
    bool good;

    path_of(host, path, full, sizeof(full));
    file = fopen(full, "re");
    if (file == NULL)
        return false;
    good = fgets(out, (int)cap, file) != NULL;
    fclose(file);
    if (good)
        out[strcspn(out, "\n")] = '\0';
    return good;
}

static unsigned entries(const struct sc_host *host, const char *path)
{
    char full[512];
    const struct dirent *entry;
    unsigned count = 0;
    DIR *folder;

    path_of(host, path, full, sizeof(full));
    folder = opendir(full);
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* ---- the kernel ---- */

void sc_look_btf(const struct sc_host *host, struct sc_finding *out)
{
    if (can_read(host, "/sys/kernel/btf/vmlinux"))
        sc_find(out, SC_WELL, "", "the kernel describes its types (BTF): eBPF probes can load");
    else
        sc_find(out, SC_LESS, "a kernel with CONFIG_DEBUG_INFO_BTF=y",
                "the kernel does not describe its types (/sys/kernel/btf/vmlinux): no eBPF probes, "
                "their fallbacks do");
}

struct capability {
    unsigned bit;
    const char *name, *for_what;
};

static const struct capability capabilities[] = {
    {39, "CAP_BPF", "eBPF probes"},
    {38, "CAP_PERFMON", "eBPF probes"},
    {12, "CAP_NET_ADMIN", "sockets and devices of others"},
    {34, "CAP_SYSLOG", "the kernel's log"},
};

static bool read_caps(const struct sc_host *host, unsigned long long *out)
{
    char path[64], full[512], line[256];
    bool found = false;
    FILE *file;

    if (host->pid != 0)
        snprintf(path, sizeof(path), "/proc/%ld/status", host->pid);
    else
        snprintf(path, sizeof(path), "/proc/self/status");
    path_of(host, path, full, sizeof(full));
    file = fopen(full, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        found = sscanf(line, "CapEff: %llx", out) == 1;
    if (file != NULL)
        fclose(file);
    return found;
}

void sc_look_caps(const struct sc_host *host, struct sc_finding *out)
{
    const char *whose = host->pid != 0 ? "the agent" : "this user";
    unsigned long long caps;
    char missing[256] = "";

    if (!read_caps(host, &caps)) {
        sc_find(out, SC_LESS, "", "the capabilities of %s cannot be read", whose);
        return;
    }
    for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++) {
        size_t len = strlen(missing);

        if ((caps >> capabilities[i].bit & 1) == 0)
            snprintf(missing + len, sizeof(missing) - len, "%s%s (%s)", len > 0 ? ", " : "",
                     capabilities[i].name, capabilities[i].for_what);
    }
    if (missing[0] == '\0')
        sc_find(out, SC_WELL, "", "%s has all capabilities that it needs", whose);
    else
        sc_find(out, SC_LESS,
                "AmbientCapabilities=CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_SYSLOG in the unit",
                "%s lacks %s", whose, missing);
}

void sc_look_lockdown(const struct sc_host *host, struct sc_finding *out)
{
    char line[128];

    if (!read_line(host, "/sys/kernel/security/lockdown", line, sizeof(line)))
        sc_find(out, SC_WELL, "", "the kernel is not locked down, or does not say");
    else if (strstr(line, "[confidentiality]") != NULL)
        sc_find(out, SC_LESS, "lockdown=integrity on the kernel's command line",
                "the kernel is locked down for confidentiality: no eBPF probes");
    else
        sc_find(out, SC_WELL, "", "lockdown: %s", line);
}

void sc_look_kmsg(const struct sc_host *host, struct sc_finding *out)
{
    char full[512], line[16] = "?";
    int fd;

    path_of(host, "/dev/kmsg", full, sizeof(full));
    (void)read_line(host, "/proc/sys/kernel/dmesg_restrict", line, sizeof(line));
    fd = open(full, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        sc_find(out, SC_WELL, "", "the kernel's log can be read (dmesg_restrict is %s)", line);
        return;
    }
    /* A container may do without: the agent's own line says whether it is asked for. */
    sc_find(out, errno == EPERM || errno == EACCES ? SC_WRONG : SC_LESS,
            errno == EPERM || errno == EACCES ? "CAP_SYSLOG, or kernel.dmesg_restrict=0"
                                              : "/dev/kmsg in the container",
            "the kernel's log cannot be read: %s (dmesg_restrict is %s)", strerror(errno), line);
}

void sc_look_rdma(const struct sc_host *host, struct sc_finding *out)
{
    unsigned count = entries(host, "/sys/class/infiniband");

    if (count > 0)
        sc_find(out, SC_WELL, "", "%u RDMA device%s in /sys/class/infiniband", count,
                count == 1 ? "" : "s");
    else
        sc_find(out, SC_LESS,
                "the NIC's driver, if there is an RDMA NIC: modprobe mlx5_ib, or others",
                "no RDMA device in /sys/class/infiniband");
}

void sc_look_tracefs(const struct sc_host *host, struct sc_finding *out)
{
    if (can_read(host, "/sys/kernel/tracing/events"))
        sc_find(out, SC_WELL, "", "tracepoints can be seen (/sys/kernel/tracing)");
    else
        sc_find(out, SC_LESS, "mount -t tracefs tracefs /sys/kernel/tracing, as root",
                "tracefs is not mounted, or may not be read");
}

void sc_look_cgroup(const struct sc_host *host, struct sc_finding *out)
{
    if (can_read(host, "/sys/fs/cgroup/cgroup.controllers"))
        sc_find(out, SC_WELL, "", "cgroup v2");
    else if (can_read(host, "/sys/fs/cgroup/unified/cgroup.controllers"))
        sc_find(out, SC_LESS, "systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
                "cgroup v1 and v2 together: quotas and limits of jobs may not be seen");
    else
        sc_find(out, SC_LESS, "systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
                "no cgroup v2: quotas and limits of jobs are not seen");
}

void sc_look_pressure(const struct sc_host *host, struct sc_finding *out)
{
    char line[128];

    if (read_line(host, "/proc/pressure/memory", line, sizeof(line)))
        sc_find(out, SC_WELL, "", "pressure (PSI) is told");
    else
        sc_find(out, SC_LESS, "psi=1 on the kernel's command line",
                "no pressure (PSI): waiting for memory is not seen");
}

/* ---- beside the kernel ---- */

void sc_look_nvml(const struct sc_host *host, struct sc_finding *out)
{
    bool has_gpu = can_read(host, "/proc/driver/nvidia/version");
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (library != NULL)
        dlclose(library);
    if (library != NULL && has_gpu)
        sc_find(out, SC_WELL, "", "NVIDIA's driver and NVML are there");
    else if (has_gpu)
        sc_find(
            out, SC_LESS, "libnvidia-ml1, of the driver's version",
            "NVIDIA's driver is there and NVML is not: health of GPUs only by the kernel's log");
    else
        sc_find(out, SC_LESS, "", "no NVIDIA driver: there are no GPUs of it to watch");
}

void sc_look_store(const char *path, bool is_running, struct sc_finding *out)
{
    const char *slash = strrchr(path, '/');
    char folder[512];
    struct statvfs space;

    snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) : 1,
             slash != NULL ? path : ".");
    if (statvfs(folder[0] != '\0' ? folder : "/", &space) != 0)
        sc_find(out, is_running ? SC_LESS : SC_WRONG,
                "StateDirectory=sluiced in the unit, or [store] path elsewhere",
                "%s, for the store, is not there: %s", folder, strerror(errno));
    else if (access(path, F_OK) == 0 ? access(path, W_OK) != 0 : access(folder, W_OK) != 0)
        sc_find(out, is_running ? SC_LESS : SC_WRONG,
                "run this as the agent's user, or [store] path elsewhere",
                "the store, %s, may not be written by this user", path);
    else if ((unsigned long long)space.f_bavail * space.f_frsize < 256ULL << 20)
        sc_find(out, SC_WRONG, "room on that file system", "less than 256 MiB are free for %s",
                path);
    else
        sc_find(out, SC_WELL, "", "%s can be written", path);
}
