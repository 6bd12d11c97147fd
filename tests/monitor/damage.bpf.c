/* SPDX-License-Identifier: Apache-2.0 */
/* Turns one bit of the data of one packet in 2^32 / PART: for `tc filter ... bpf da`. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))
#define DATA 66 /* behind the headers of Ethernet, IPv4 and TCP with time stamps */

static long (*load_bytes)(const void *skb, __u32 at, void *to,
                          __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static long (*store_bytes)(void *skb, __u32 at, const void *from, __u32 len,
                           __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static __u32 (*random_u32)(void) = (void *)BPF_FUNC_get_prandom_u32;

SECTION("tc") int damage(struct __sk_buff *skb)
{
    __u8 byte;

    if (random_u32() >= PART || skb->len <= DATA + 8)
        return TC_ACT_OK;
    if (load_bytes(skb, DATA + 4, &byte, 1) != 0)
        return TC_ACT_OK;
    byte ^= 1;
    store_bytes(skb, DATA + 4, &byte, 1, 0);
    return TC_ACT_OK;
}

char is_licensed[] SECTION("license") = "GPL";
