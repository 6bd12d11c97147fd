/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cgroup.h"

#include "monitor/proctext.h"

#include "core/err.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 256 /* of all processes */
#define LEVELS 16      /* of one of them: its own, and those above it, of both kinds */
#define PATH_CAP 1024

enum kind { CPU, MEMORY, KINDS };

/* A cgroup, as one controller has it; free where refs is 0. */
struct group {
    char *path; /* in the file system */
    enum kind kind;
    bool is_v2, is_limited;
    unsigned refs;
    uint64_t id;                          /* of none before it */
    int limit, period, stat, pressure;    /* descriptors; -1: it has none */
    uint64_t begun;                       /* the period that what follows is of */
    struct sl_mon_quota_reading quota;    /* of CPU */
    uint64_t hits, hits_before, stall_ns; /* of MEMORY */
    bool has_stall;
};

struct sl_mon_membership {
    uint64_t text_hash;
    unsigned count;
    struct group *groups[LEVELS]; /* of each kind its own one first */
};

struct sl_mon_cgroups {
    char hierarchies[KINDS][PATH_MAX]; /* of version 1; "": there is none */
    char unified[PATH_MAX];            /* of version 2 */
    int host_pressure;
    uint64_t period, ids, host_stall_ns, host_begun;
    unsigned full; /* cgroups that reached their limits in the period before this one */
    bool has_host_stall;
    struct group groups[GROUPS_MAX];
};

/* ---- files ---- */

__attribute__((format(printf, 1, 2))) static int open_file(const char *fmt, ...)
{
    char path[PATH_MAX + PATH_CAP + 256];
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(path, sizeof(path), fmt, args);

    va_end(args);
    return len < 0 || (size_t)len >= sizeof(path) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
}

static bool read_text(int fd, char *out, size_t cap)
{
    ssize_t len = fd < 0 ? -1 : pread(fd, out, cap - 1, 0);

    if (len <= 0)
        return false;
    out[len] = '\0';
    return true;
}

/* The first of these folders below root that is a hierarchy of cgroups; "" where none is. */
static void find_hierarchy(const char *root, const char *const *names, const char *file, char *out,
                           size_t cap)
{
    char path[PATH_MAX + 128];

    out[0] = '\0';
    for (; *names != NULL && out[0] == '\0'; names++) {
        snprintf(path, sizeof(path), "%.4000s%s/%s", root, *names, file);
        if (access(path, F_OK) == 0)
            snprintf(out, cap, "%.4000s%s", root, *names);
    }
}

int sl_mon_cgroups_open(const char *root, const char *proc, struct sl_mon_cgroups **out)
{
    /* A controller of version 1 may share its hierarchy with another one. */
    static const char *const cpu[] = {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu", NULL};
    static const char *const memory[] = {"/memory", NULL}, *const unified[] = {"", "/unified",
                                                                               NULL};
    struct sl_mon_cgroups *cgroups = calloc(1, sizeof(*cgroups));

    if (cgroups == NULL)
        return sl_fail(-ENOMEM, "no memory for a list of cgroups");
    find_hierarchy(root, cpu, "cgroup.procs", cgroups->hierarchies[CPU], PATH_MAX);
    find_hierarchy(root, memory, "cgroup.procs", cgroups->hierarchies[MEMORY], PATH_MAX);
    find_hierarchy(root, unified, "cgroup.controllers", cgroups->unified, PATH_MAX);
    cgroups->host_pressure = open_file("%s/pressure/memory", proc);
    cgroups->period = 1;
    *out = cgroups;
    return 0;
}

static void group_close(struct group *group)
{
    const int fds[] = {group->limit, group->period, group->stat, group->pressure};

    for (unsigned i = 0; i < SL_ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(group->path);
    *group = (struct group){.refs = 0};
}

void sl_mon_cgroups_close(struct sl_mon_cgroups *cgroups)
{
    if (cgroups == NULL)
        return;
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        if (cgroups->groups[i].refs > 0)
            group_close(&cgroups->groups[i]);
    if (cgroups->host_pressure >= 0)
        close(cgroups->host_pressure);
    free(cgroups);
}

/* ---- readings ---- */

/* "some": one task at least waited. */
static bool read_pressure(int fd, uint64_t *ns)
{
    char text[256];
    uint64_t us;

    if (!read_text(fd, text, sizeof(text)) || !sl_proc_pressure(text, "some", &us))
        return false;
    *ns = us * 1000;
    return true;
}

static bool read_quota(struct group *group)
{
    struct sl_mon_quota_reading *quota = &group->quota;
    char text[1024];
    uint64_t periods, throttled, time;

    if (!read_text(group->limit, text, sizeof(text)))
        return false;
    if (group->is_v2) {
        if (!sl_proc_cpu_max(text, &quota->quota_us, &quota->period_us))
            return false;
    } else if (!sl_proc_limit(text, &quota->quota_us) ||
               !read_text(group->period, text, sizeof(text)) ||
               !sl_proc_limit(text, &quota->period_us))
        return false;
    if (quota->quota_us == UINT64_MAX)
        return false;
    if (!read_text(group->stat, text, sizeof(text)) ||
        !sl_proc_field(text, "nr_periods", &periods) ||
        !sl_proc_field(text, "nr_throttled", &throttled) ||
        !sl_proc_field(text, group->is_v2 ? "throttled_usec" : "throttled_time", &time))
        return false;
    quota->periods = periods;
    quota->throttled = throttled;
    quota->throttled_ns = group->is_v2 ? time * 1000 : time;
    return true;
}

/* Times that the limit was reached: a counter of its own, or lines of memory.events. */
static bool read_limit(struct group *group)
{
    char text[1024];
    uint64_t limit, max = 0, high = 0;

    if (!group->is_v2) {
        if (!read_text(group->limit, text, sizeof(text)) || !sl_proc_limit(text, &limit) ||
            limit == UINT64_MAX || !read_text(group->stat, text, sizeof(text)))
            return false;
        return sl_proc_limit(text, &group->hits);
    }
    if (!read_text(group->stat, text, sizeof(text)) || !sl_proc_field(text, "max", &max) ||
        !sl_proc_field(text, "high", &high))
        return false;
    group->hits = max + high;
    return true;
}

/* Once a period. */
static void read_group(struct sl_mon_cgroups *cgroups, struct group *group)
{
    if (group->begun == cgroups->period)
        return;
    group->begun = cgroups->period;
    if (group->kind == CPU) {
        group->is_limited = read_quota(group);
        return;
    }
    group->is_limited = read_limit(group);
    group->has_stall = read_pressure(group->pressure, &group->stall_ns);
}

void sl_mon_cgroups_begin(struct sl_mon_cgroups *cgroups)
{
    cgroups->period++;
    cgroups->full = 0;
    for (unsigned i = 0; i < GROUPS_MAX; i++) {
        struct group *group = &cgroups->groups[i];

        if (group->refs == 0)
            continue;
        read_group(cgroups, group);
        if (group->kind == MEMORY && group->is_limited && group->hits > group->hits_before)
            cgroups->full++;
        group->hits_before = group->hits;
    }
    cgroups->has_host_stall = read_pressure(cgroups->host_pressure, &cgroups->host_stall_ns);
}

/* ---- which ones a process is in ---- */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(1469598103934665603);

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash | 1; /* 0: of no text */
}

static void group_open(struct group *group)
{
    const char *path = group->path;

    group->pressure = group->period = -1;
    if (group->kind == CPU) {
        group->limit = open_file("%s/%s", path, group->is_v2 ? "cpu.max" : "cpu.cfs_quota_us");
        group->period = group->is_v2 ? -1 : open_file("%s/cpu.cfs_period_us", path);
        group->stat = open_file("%s/cpu.stat", path);
        return;
    }
    group->limit = group->is_v2 ? -1 : open_file("%s/memory.limit_in_bytes", path);
    group->stat = open_file("%s/%s", path, group->is_v2 ? "memory.events" : "memory.failcnt");
    if (group->is_v2)
        group->pressure = open_file("%s/memory.pressure", path);
}

static struct group *group_get(struct sl_mon_cgroups *cgroups, enum kind kind, bool is_v2,
                               const char *path)
{
    struct group *free_one = NULL;

    for (unsigned i = 0; i < GROUPS_MAX; i++) {
        struct group *group = &cgroups->groups[i];

        if (group->refs == 0) {
            free_one = free_one == NULL ? group : free_one;
        } else if (group->kind == kind && group->is_v2 == is_v2 && strcmp(group->path, path) == 0) {
            group->refs++;
            return group;
        }
    }
    if (free_one == NULL)
        return NULL;
    char *copy = strdup(path);

    if (copy == NULL)
        return NULL;
    *free_one =
        (struct group){.path = copy, .kind = kind, .is_v2 = is_v2, .refs = 1, .id = ++cgroups->ids};
    free_one->quota.id = free_one->id;
    group_open(free_one);
    read_group(cgroups, free_one);
    free_one->hits_before = free_one->hits;
    return free_one;
}

/* A cgroup and those above it; the highest one is the host, and has no limits. */
static void add(struct sl_mon_cgroups *cgroups, struct sl_mon_membership *membership,
                enum kind kind, bool is_v2, const char *top, char *path)
{
    char whole[PATH_MAX + PATH_CAP + 128];

    while (path[0] == '/' && path[1] != '\0' && membership->count < LEVELS) {
        char *slash = strrchr(path, '/');
        int len = snprintf(whole, sizeof(whole), "%s%s", top, path);
        struct group *group =
            len > 0 && (size_t)len < sizeof(whole) ? group_get(cgroups, kind, is_v2, whole) : NULL;

        if (group != NULL)
            membership->groups[membership->count++] = group;
        *slash = '\0';
    }
}

static void leave(struct sl_mon_membership *membership)
{
    for (unsigned i = 0; i < membership->count; i++)
        if (--membership->groups[i]->refs == 0)
            group_close(membership->groups[i]);
    membership->count = 0;
}

/* Version 2 has pressure also where version 1 has the controller (a hybrid). */
static void join(struct sl_mon_cgroups *cgroups, struct sl_mon_membership *membership,
                 const char *text)
{
    static const char *const controllers[KINDS] = {[CPU] = "cpu", [MEMORY] = "memory"};
    char path[PATH_CAP];

    for (enum kind kind = CPU; kind < KINDS; kind++) {
        if (cgroups->hierarchies[kind][0] != '\0' &&
            sl_proc_cgroup(text, controllers[kind], path, sizeof(path)))
            add(cgroups, membership, kind, false, cgroups->hierarchies[kind], path);
        if (cgroups->unified[0] != '\0' && sl_proc_cgroup(text, "", path, sizeof(path)))
            add(cgroups, membership, kind, true, cgroups->unified, path);
    }
}

int sl_mon_membership_set(struct sl_mon_cgroups *cgroups, struct sl_mon_membership **membership,
                          const char *text)
{
    uint64_t hash = hash_of(text);
    struct sl_mon_membership *at = *membership, before;

    if (at != NULL && at->text_hash == hash)
        return 0;
    if (at == NULL) {
        at = calloc(1, sizeof(*at));
        if (at == NULL)
            return sl_fail(-ENOMEM, "no memory for the cgroups of a process");
    }
    before = *at;
    *at = (struct sl_mon_membership){.text_hash = hash};
    join(cgroups, at, text); /* before it leaves: what both have stays open */
    leave(&before);
    *membership = at;
    return 0;
}

void sl_mon_membership_free(struct sl_mon_cgroups *cgroups, struct sl_mon_membership *membership)
{
    (void)cgroups;
    if (membership == NULL)
        return;
    leave(membership);
    free(membership);
}

static void add_quota(const struct group *group, struct sl_mon_process_reading *out)
{
    if (group->is_limited && out->quota_count < SL_MON_PROCESS_QUOTAS)
        out->quotas[out->quota_count++] = group->quota;
}

static void add_memory(const struct group *group, struct sl_mon_process_reading *out)
{
    if (group->is_limited) {
        out->memory_id = out->memory_id * 31 + group->id;
        out->memory_hits += group->hits;
    }
    if (group->has_stall && !out->is_stall_own) { /* the first is its own */
        out->has_stall = out->is_stall_own = true;
        out->stall_ns = group->stall_ns;
    }
}

void sl_mon_membership_read(struct sl_mon_cgroups *cgroups,
                            const struct sl_mon_membership *membership,
                            struct sl_mon_process_reading *out)
{
    out->has_quotas = cgroups->hierarchies[CPU][0] != '\0' || cgroups->unified[0] != '\0';
    out->quota_count = 0;
    out->memory_id = out->memory_hits = 0;
    out->has_stall = out->is_stall_own = false;
    for (unsigned i = 0; membership != NULL && i < membership->count; i++) {
        struct group *group = membership->groups[i];

        read_group(cgroups, group);
        if (group->kind == CPU)
            add_quota(group, out);
        else
            add_memory(group, out);
    }
    out->is_only_full = cgroups->full <= 1;
    if (!out->has_stall && cgroups->has_host_stall) {
        out->has_stall = true;
        out->stall_ns = cgroups->host_stall_ns;
    }
}
