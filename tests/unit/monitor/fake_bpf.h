/* SPDX-License-Identifier: Apache-2.0 */
/* Probes that need no kernel: a test defines what ebpf/probe.h declares, and puts into maps and the
 * ring what a kernel would. To be included once. */
#ifndef SL_TEST_FAKE_BPF_H
#define SL_TEST_FAKE_BPF_H

#include "ebpf/probe.h"
#include "ebpf/shared.h"

#include "core/err.h"

#include <errno.h>
#include <string.h>

static struct {
    int err; /* of opening */
    bool is_without_modules;
    unsigned opened, closed, listed, attached;
    uint64_t counts[SL_BPF_REASONS];
    const void *keys, *values; /* of the map that is listed */
    size_t key_bytes, value_bytes;
    unsigned entries;
    const struct sl_bpf_rdma_event *events;
    unsigned event_count;
    void (*on_event)(void *arg, const void *event);
    void *arg;
} fake;

static struct sl_bpf *fake_bpf(void)
{
    return (struct sl_bpf *)(void *)&fake;
}

int sl_bpf_open_first(const char *object, const char *const *const *ways, unsigned count,
                      const struct sl_bpf_settings *settings, struct sl_bpf **out)
{
    (void)ways, (void)count, (void)settings;
    fake.opened++;
    if (fake.err != 0)
        return sl_fail(fake.err, "no probe %s in this kernel of mine", object);
    *out = fake_bpf();
    return 0;
}

int sl_bpf_load(const char *object, const char *const *programs, struct sl_bpf **out)
{
    (void)object, (void)programs, (void)out;
    return -ENOSYS;
}

int sl_bpf_attach(struct sl_bpf *bpf)
{
    (void)bpf;
    fake.attached++;
    return 0;
}

void sl_bpf_detach(struct sl_bpf *bpf)
{
    (void)bpf;
}

void sl_bpf_close(struct sl_bpf *bpf)
{
    fake.closed += bpf != NULL;
}

int sl_bpf_sums(struct sl_bpf *bpf, const char *map, uint64_t *out, unsigned count)
{
    (void)bpf, (void)map;
    memcpy(out, fake.counts, count * sizeof(*out));
    return 0;
}

int sl_bpf_list(struct sl_bpf *bpf, const char *map, void *keys, void *values, unsigned most)
{
    (void)bpf, (void)map;
    sl_assert(fake.entries <= most);
    fake.listed++;
    if (fake.entries > 0) {
        memcpy(keys, fake.keys, fake.entries * fake.key_bytes);
        memcpy(values, fake.values, fake.entries * fake.value_bytes);
    }
    return (int)fake.entries;
}

int sl_bpf_get(struct sl_bpf *bpf, const char *map, const void *key, void *value)
{
    (void)bpf, (void)map, (void)key, (void)value;
    return -ENOENT;
}

int sl_bpf_put(struct sl_bpf *bpf, const char *map, const void *key, const void *value)
{
    (void)bpf, (void)map, (void)key, (void)value;
    return 0;
}

void sl_bpf_remove(struct sl_bpf *bpf, const char *map, const void *key)
{
    (void)bpf, (void)map, (void)key;
}

int sl_bpf_ring_open(struct sl_bpf *bpf, const char *map, size_t size,
                     void (*fn)(void *arg, const void *event), void *arg)
{
    (void)bpf, (void)map, (void)size;
    fake.on_event = fn;
    fake.arg = arg;
    return 0;
}

int sl_bpf_ring_fd(const struct sl_bpf *bpf)
{
    (void)bpf;
    return -1;
}

int sl_bpf_ring_read(struct sl_bpf *bpf, unsigned most)
{
    int count = 0;

    (void)bpf;
    for (; fake.event_count > 0 && (unsigned)count < most; fake.event_count--, count++)
        fake.on_event(fake.arg, fake.events++);
    return count;
}

int sl_bpf_enum(const char *name, void (*fn)(void *arg, const char *name, uint64_t value),
                void *arg)
{
    (void)name;
    fn(arg, "SKB_NOT_DROPPED_YET", 0);
    fn(arg, "SKB_DROP_REASON_NO_SOCKET", 3);
    fn(arg, "SKB_DROP_REASON_TCP_CSUM", 5);
    fn(arg, "SKB_DROP_REASON_PINK", 7);
    fn(arg, "SKB_DROP_REASON_MAX", SL_BPF_REASONS + 3);
    return 0;
}

bool sl_bpf_may_read_modules(void)
{
    return !fake.is_without_modules;
}

#endif
