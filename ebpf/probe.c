/* SPDX-License-Identifier: Apache-2.0 */
#include "ebpf/probe.h"

#include "ebpf/objects.h"

#include "core/err.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/capability.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TYPES "/sys/kernel/btf/vmlinux"
#define PROGRAMS_MAX 8
#define LOG_BYTES (64 * 1024) /* of the verifier: its last words count */

struct sl_bpf {
    struct bpf_object *object;
    const char *name;
    struct bpf_link *links[PROGRAMS_MAX];
    unsigned link_count;
    uint64_t *per_cpu; /* one value for each processor */
    size_t per_cpu_bytes;
    struct ring_buffer *ring;
    size_t event_bytes;
    void (*on_event)(void *arg, const void *event);
    void *arg;
    unsigned events, events_most; /* of this read */
};

/* ---- why not ---- */

static int print_nothing(enum libbpf_print_level level, const char *fmt, va_list args)
{
    (void)level, (void)fmt, (void)args;
    return 0;
}

static bool has(unsigned capability)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &head, data) != 0)
        return true;
    return (data[capability / 32].effective >> capability % 32 & 1) != 0;
}

static bool may_load(void)
{
    return has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON));
}

bool sl_bpf_may_read_modules(void)
{
    return has(CAP_SYS_ADMIN);
}

/* The verifier's last line but its statistics, or the first that there is. */
static const char *last_words(char *log)
{
    char *line, *rest = NULL, *last = NULL;

    for (line = strtok_r(log, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "processed ", 10) != 0 && strncmp(line, "verification time", 17) != 0)
            last = line;
    return last != NULL ? last : "it gives no reason";
}

static int refused(const char *object, int err, char *log)
{
    bool is_silent = log == NULL || log[0] == '\0';

    if (err == -ESRCH || err == -ENOENT)
        return sl_fail(-ENOTSUP,
                       "this kernel has no tracepoint or function that the BPF probe '%s' is for",
                       object);
    if (err == -EPERM && is_silent)
        return sl_fail(-ENOTSUP, "this kernel forbids programs such as the BPF probe '%s'", object);
    if (err == -ENOMEM)
        return sl_fail(-ENOMEM, "no memory for the BPF probe '%s'", object);
    return sl_fail(err, "the kernel refuses the BPF probe '%s' (%s): %.200s", object,
                   sluice_strerror(err), is_silent ? "it gives no reason" : last_words(log));
}

/* What can be said before libbpf is asked, as that costs some milliseconds. */
static int precheck(const char *object)
{
    if (!may_load())
        return sl_fail(-EPERM,
                       "the BPF probe '%s' needs the capabilities CAP_BPF and CAP_PERFMON "
                       "(or CAP_SYS_ADMIN)",
                       object);
    if (access(TYPES, R_OK) != 0)
        return sl_fail(-ENOTSUP,
                       "the BPF probe '%s' needs a kernel with its types in it "
                       "(CONFIG_DEBUG_INFO_BTF): %s cannot be read: %s",
                       object, TYPES, sluice_strerror(errno));
    return 0;
}

/* ---- loading ---- */

static bool is_among(const char *const *programs, const char *name)
{
    for (; *programs != NULL; programs++)
        if (strcmp(*programs, name) == 0)
            return true;
    return false;
}

/* Each program's log goes to a part of log. */
static void choose(struct bpf_object *object, const char *const *programs, char *log)
{
    struct bpf_program *program;

    bpf_object__for_each_program(program, object)
    {
        bool is_wanted = is_among(programs, bpf_program__name(program));

        bpf_program__set_autoload(program, is_wanted);
        if (is_wanted)
            bpf_program__set_log_buf(program, log, LOG_BYTES);
    }
}

int sl_bpf_load(const char *name, const char *const *programs, struct sl_bpf **out)
{
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name);
    size_t len = 0;
    const void *bytes = sl_bpf_object(name, &len);
    struct sl_bpf *bpf;
    char *log;
    int err;

    if (bytes == NULL)
        return sl_fail(-ENOENT, "no BPF probe '%s' was built", name);
    err = precheck(name);
    if (err != 0)
        return err;
    bpf = calloc(1, sizeof(*bpf));
    log = calloc(1, LOG_BYTES);
    if (bpf == NULL || log == NULL) {
        free(bpf);
        free(log);
        return sl_fail(-ENOMEM, "no memory for the BPF probe '%s'", name);
    }
    bpf->name = name;
    libbpf_set_print(print_nothing);
    bpf->object = bpf_object__open_mem(bytes, len, &options);
    if (bpf->object == NULL) {
        err = refused(name, -errno, NULL);
    } else {
        choose(bpf->object, programs, log);
        err = bpf_object__load(bpf->object);
        if (err != 0)
            err = refused(name, err, log);
    }
    free(log);
    /* The kernel's types were read and let go, 5 MB: not kept for the next time. */
    malloc_trim(0);
    if (err != 0) {
        sl_bpf_close(bpf);
        return err;
    }
    *out = bpf;
    return 0;
}

static int cannot_attach(const struct sl_bpf *bpf, const char *program, int err)
{
    if (err == -ENOENT || err == -EOPNOTSUPP || err == -ENODEV || err == -ESRCH)
        return sl_fail(-ENOTSUP,
                       "this kernel has nothing to attach '%s' of the BPF probe '%s' to: no such "
                       "function, or no kprobes",
                       program, bpf->name);
    if (err == -EACCES || err == -EPERM)
        return sl_fail(-EPERM,
                       "'%s' of the BPF probe '%s' cannot be attached: that needs CAP_SYS_ADMIN, "
                       "or a readable tracefs",
                       program, bpf->name);
    return sl_fail(err, "'%s' of the BPF probe '%s' cannot be attached: %s", program, bpf->name,
                   sluice_strerror(err));
}

int sl_bpf_attach(struct sl_bpf *bpf)
{
    struct bpf_program *program;

    if (bpf->link_count > 0)
        return 0;
    bpf_object__for_each_program(program, bpf->object)
    {
        struct bpf_link *link;

        if (!bpf_program__autoload(program))
            continue;
        sl_assert(bpf->link_count < PROGRAMS_MAX);
        link = bpf_program__attach(program);
        if (link == NULL) {
            int err = cannot_attach(bpf, bpf_program__name(program), -errno);

            sl_bpf_detach(bpf);
            return err;
        }
        bpf->links[bpf->link_count++] = link;
    }
    return 0;
}

void sl_bpf_detach(struct sl_bpf *bpf)
{
    while (bpf->link_count > 0)
        bpf_link__destroy(bpf->links[--bpf->link_count]);
}

void sl_bpf_close(struct sl_bpf *bpf)
{
    if (bpf == NULL)
        return;
    sl_bpf_detach(bpf);
    ring_buffer__free(bpf->ring);
    bpf_object__close(bpf->object);
    free(bpf->per_cpu);
    free(bpf);
}

int sl_bpf_open_first(const char *object, const char *const *const *ways, unsigned count,
                      const struct sl_bpf_settings *settings, struct sl_bpf **out)
{
    int err = -ENOTSUP;

    for (unsigned i = 0; i < count; i++) {
        struct sl_bpf *bpf = NULL;
        uint32_t zero = 0;

        err = sl_bpf_load(object, ways[i], &bpf);
        if (err == 0 && settings != NULL)
            err = sl_bpf_put(bpf, "settings", &zero, settings);
        if (err == 0)
            err = sl_bpf_attach(bpf);
        if (err == 0) {
            *out = bpf;
            return 0;
        }
        sl_bpf_close(bpf);
    }
    return err;
}

/* ---- maps ---- */

static int map_of(const struct sl_bpf *bpf, const char *name, const struct bpf_map **out)
{
    struct bpf_map *map = bpf_object__find_map_by_name(bpf->object, name);

    sl_assert(map != NULL);
    if (out != NULL)
        *out = map;
    return bpf_map__fd(map);
}

static int map_failed(const struct sl_bpf *bpf, const char *map, int err)
{
    return sl_fail(err, "the map '%s' of the BPF probe '%s': %s", map, bpf->name,
                   sluice_strerror(err));
}

/* The kernel writes a value for each processor that could be there, at multiples of 8 bytes. */
int sl_bpf_sums(struct sl_bpf *bpf, const char *name, uint64_t *out, unsigned count)
{
    const struct bpf_map *map;
    int cpus = libbpf_num_possible_cpus(), fd = map_of(bpf, name, &map);
    size_t each = bpf_map__value_size(map);
    uint32_t zero = 0;

    sl_assert(each >= count * sizeof(*out) && each % sizeof(*out) == 0);
    if (cpus <= 0)
        return sl_fail(-EIO, "the number of processors cannot be read");
    if (bpf->per_cpu_bytes < each * (size_t)cpus) {
        uint64_t *more = realloc(bpf->per_cpu, each * (size_t)cpus);

        if (more == NULL)
            return sl_fail(-ENOMEM, "no memory to read the BPF probe '%s'", bpf->name);
        bpf->per_cpu = more;
        bpf->per_cpu_bytes = each * (size_t)cpus;
    }
    if (bpf_map_lookup_elem(fd, &zero, bpf->per_cpu) != 0)
        return map_failed(bpf, name, -errno);
    memset(out, 0, count * sizeof(*out));
    for (int cpu = 0; cpu < cpus; cpu++)
        for (unsigned i = 0; i < count; i++)
            out[i] += bpf->per_cpu[(size_t)cpu * (each / sizeof(*out)) + i];
    return 0;
}

/* One call lists all: the kernel says ENOENT at the end, ENOSPC where a bucket has no room. */
int sl_bpf_list(struct sl_bpf *bpf, const char *map, void *keys, void *values, unsigned most)
{
    uint64_t next; /* a position, should there be more: at most as large as this */
    uint32_t count = most;

    if (bpf_map_lookup_batch(map_of(bpf, map, NULL), NULL, &next, keys, values, &count, NULL) !=
            0 &&
        errno != ENOENT && errno != ENOSPC)
        return map_failed(bpf, map, -errno);
    return (int)count;
}

int sl_bpf_get(struct sl_bpf *bpf, const char *map, const void *key, void *value)
{
    return bpf_map_lookup_elem(map_of(bpf, map, NULL), key, value) == 0
               ? 0
               : map_failed(bpf, map, -errno);
}

int sl_bpf_put(struct sl_bpf *bpf, const char *map, const void *key, const void *value)
{
    return bpf_map_update_elem(map_of(bpf, map, NULL), key, value, BPF_ANY) == 0
               ? 0
               : map_failed(bpf, map, -errno);
}

void sl_bpf_remove(struct sl_bpf *bpf, const char *map, const void *key)
{
    (void)bpf_map_delete_elem(map_of(bpf, map, NULL), key);
}

/* ---- events ---- */

static int on_sample(void *arg, void *data, size_t size)
{
    struct sl_bpf *bpf = arg;

    if (size >= bpf->event_bytes)
        bpf->on_event(bpf->arg, data);
    return ++bpf->events < bpf->events_most ? 0 : -ENOSPC; /* the rest waits for the next read */
}

int sl_bpf_ring_open(struct sl_bpf *bpf, const char *map, size_t size,
                     void (*fn)(void *arg, const void *event), void *arg)
{
    bpf->event_bytes = size;
    bpf->on_event = fn;
    bpf->arg = arg;
    bpf->ring = ring_buffer__new(map_of(bpf, map, NULL), on_sample, bpf, NULL);
    return bpf->ring != NULL ? 0 : map_failed(bpf, map, -errno);
}

int sl_bpf_ring_fd(const struct sl_bpf *bpf)
{
    return bpf->ring != NULL ? ring_buffer__epoll_fd(bpf->ring) : -1;
}

int sl_bpf_ring_read(struct sl_bpf *bpf, unsigned most)
{
    int n;

    bpf->events = 0;
    bpf->events_most = most;
    n = ring_buffer__consume(bpf->ring);
    return n < 0 && n != -ENOSPC ? map_failed(bpf, "events", n) : (int)bpf->events;
}

/* ---- types ---- */

int sl_bpf_enum(const char *name, void (*fn)(void *arg, const char *name, uint64_t value),
                void *arg)
{
    struct btf *types;
    int id;

    libbpf_set_print(print_nothing);
    types = btf__load_vmlinux_btf();
    if (types == NULL)
        return sl_fail(-ENOTSUP, "the kernel's types cannot be read: %s", sluice_strerror(errno));
    id = btf__find_by_name_kind(types, name, BTF_KIND_ENUM);
    if (id > 0) {
        const struct btf_type *type = btf__type_by_id(types, (uint32_t)id);

        for (unsigned i = 0; i < btf_vlen(type); i++)
            fn(arg, btf__name_by_offset(types, btf_enum(type)[i].name_off),
               (uint32_t)btf_enum(type)[i].val);
    }
    btf__free(types);
    malloc_trim(0);
    return id > 0 ? 0 : sl_fail(-ENOTSUP, "this kernel has no enum %s", name);
}
