/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* Template: what every BPF program of this folder begins with. For clang -target bpf only. */
#ifndef SL_EBPF_PROGRAM_H
#define SL_EBPF_PROGRAM_H

#include "ebpf/kern.h"
#include "ebpf/shared.h"

#include <stddef.h>

#define __VMLINUX_H__ /* libbpf: registers have the kernel's names */
#include <bpf/bpf_helpers.h>
/* after the helpers */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#define AF_INET6 10

/* Some helpers are for programs that the GPL allows. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Numbers that only go up: one value, an array, for each processor, so that nobody waits. */
#define COUNTS(name_, count_)                                                                      \
    struct name_##_value {                                                                         \
        __u64 at[count_];                                                                          \
    };                                                                                             \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                   \
        __uint(max_entries, 1);                                                                    \
        __type(key, __u32);                                                                        \
        __type(value, struct name_##_value);                                                       \
    } name_ SEC(".maps")

/* which: below the count, as the verifier sees. */
#define COUNT(name_, which_)                                                                       \
    do {                                                                                           \
        __u32 zero_ = 0;                                                                           \
        struct name_##_value *value_ = bpf_map_lookup_elem(&(name_), &zero_);                      \
        if (value_ != NULL)                                                                        \
            value_->at[which_]++;                                                                  \
    } while (0)

#define SETTINGS                                                                                   \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_ARRAY);                                                          \
        __uint(max_entries, 1);                                                                    \
        __type(key, __u32);                                                                        \
        __type(value, struct sl_bpf_settings);                                                     \
    } settings SEC(".maps");                                                                       \
    static __always_inline const struct sl_bpf_settings *settings_now(void)                        \
    {                                                                                              \
        __u32 zero = 0;                                                                            \
        return bpf_map_lookup_elem(&settings, &zero);                                              \
    }

/* A device of another network namespace has its number too: those are not this host's. */
static __always_inline bool is_ours(const struct sl_bpf_settings *settings,
                                    const struct net_device *dev)
{
    return settings != NULL &&
           (settings->netns == 0 || settings->netns == dev->nd_net.net->ns.inum);
}

#endif
