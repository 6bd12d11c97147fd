/* SPDX-License-Identifier: Apache-2.0 */
/* In place of probe.c where clang, bpftool or libbpf was missing at build: there are no probes. */
#include "ebpf/probe.h"

#include "core/err.h"

static int absent(void)
{
    return sl_fail(-ENOTSUP, "this agent was built without eBPF: install clang, bpftool and "
                             "libbpf-dev, and build again");
}

int sl_bpf_load(const char *object, const char *const *programs, struct sl_bpf **out)
{
    (void)object, (void)programs, (void)out;
    return absent();
}

int sl_bpf_open_first(const char *object, const char *const *const *ways, unsigned count,
                      const struct sl_bpf_settings *settings, struct sl_bpf **out)
{
    (void)object, (void)ways, (void)count, (void)settings, (void)out;
    return absent();
}

int sl_bpf_enum(const char *name, void (*fn)(void *arg, const char *name, uint64_t value),
                void *arg)
{
    (void)name, (void)fn, (void)arg;
    return absent();
}

/* Nothing was loaded, so nothing of the rest is ever called. */

int sl_bpf_attach(struct sl_bpf *bpf)
{
    (void)bpf;
    return absent();
}

void sl_bpf_detach(struct sl_bpf *bpf)
{
    (void)bpf;
}

void sl_bpf_close(struct sl_bpf *bpf)
{
    (void)bpf;
}

int sl_bpf_sums(struct sl_bpf *bpf, const char *map, uint64_t *out, unsigned count)
{
    (void)bpf, (void)map, (void)out, (void)count;
    return absent();
}

int sl_bpf_list(struct sl_bpf *bpf, const char *map, void *keys, void *values, unsigned most)
{
    (void)bpf, (void)map, (void)keys, (void)values, (void)most;
    return absent();
}

int sl_bpf_get(struct sl_bpf *bpf, const char *map, const void *key, void *value)
{
    (void)bpf, (void)map, (void)key, (void)value;
    return absent();
}

int sl_bpf_put(struct sl_bpf *bpf, const char *map, const void *key, const void *value)
{
    (void)bpf, (void)map, (void)key, (void)value;
    return absent();
}

void sl_bpf_remove(struct sl_bpf *bpf, const char *map, const void *key)
{
    (void)bpf, (void)map, (void)key;
}

int sl_bpf_ring_open(struct sl_bpf *bpf, const char *map, size_t size,
                     void (*fn)(void *arg, const void *event), void *arg)
{
    (void)bpf, (void)map, (void)size, (void)fn, (void)arg;
    return absent();
}

int sl_bpf_ring_fd(const struct sl_bpf *bpf)
{
    (void)bpf;
    return -1;
}

int sl_bpf_ring_read(struct sl_bpf *bpf, unsigned most)
{
    (void)bpf, (void)most;
    return absent();
}

bool sl_bpf_may_read_modules(void)
{
    return true; /* that is not what is missing */
}
