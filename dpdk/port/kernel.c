/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port of af_packet has a copy of what its interface receives; the kernel goes on with its own,
 * looks for a way to an address that it does not know, and throws it away. That is a tenth of the
 * processor's work for a stream, or an ICMP message to the peer where the kernel forwards. A BPF
 * program behind the port's tap ends it: what is UDP to the port's address and UDP port, and
 * nothing else. The program goes with the descriptor of its link (tcx, Linux 6.6), so nothing stays
 * of a process that was killed.
 */
#include "core/fork.h"
#include "core/log.h"
#include "dpdk/port/inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TCX_INGRESS 46 /* BPF_TCX_INGRESS, TCX_NEXT and TCX_DROP: headers of 6.6 */
#define VERDICT_NEXT (-1)
#define VERDICT_DROP 2

#define CODE_MAX 48
#define EXITS_MAX 24

/* A program that is being written; exits: jumps to its end, which lets the packet pass. */
struct code {
    struct bpf_insn at[CODE_MAX];
    unsigned count, exits[EXITS_MAX], exit_count;
};

static void add(struct code *code, struct bpf_insn instruction)
{
    sl_assert(code->count < CODE_MAX);
    code->at[code->count++] = instruction;
}

static void set(struct code *code, unsigned to, int value)
{
    add(code,
        (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = to & 15, .imm = value});
}

/* Register 0 is a field of the packet's description, from now on. */
static void read_field(struct code *code, size_t offset)
{
    add(code, (struct bpf_insn){.code = BPF_LDX | BPF_MEM | BPF_W,
                                .dst_reg = BPF_REG_0,
                                .src_reg = BPF_REG_6,
                                .off = (int16_t)offset});
}

/* Lets the packet pass if register 0 compares so with the value, of 32 bits. */
static void pass_if(struct code *code, uint8_t comparison, uint32_t value)
{
    sl_assert(code->exit_count < EXITS_MAX);
    code->exits[code->exit_count++] = code->count;
    add(code, (struct bpf_insn){.code = (uint8_t)(BPF_JMP32 | comparison | BPF_K),
                                .dst_reg = BPF_REG_0,
                                .imm = (int32_t)value});
}

/* Lets the packet pass unless its bytes there (size: BPF_B, BPF_H, BPF_W) are the value. */
static void want(struct code *code, uint8_t size, int offset, uint32_t value)
{
    add(code, (struct bpf_insn){.code = (uint8_t)(BPF_LD | BPF_ABS | size), .imm = offset});
    pass_if(code, BPF_JNE, value);
}

static void want_address(struct code *code, int offset, const uint8_t *address, unsigned words)
{
    for (unsigned i = 0; i < words; i++) {
        uint32_t word;

        memcpy(&word, address + (size_t)4 * i, sizeof(word));
        want(code, BPF_W, offset + (int)(4 * i), ntohl(word));
    }
}

static void begin(struct code *code, uint32_t len_least)
{
    memset(code, 0, sizeof(*code));
    add(code, (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_X,
                                .dst_reg = BPF_REG_6, /* where BPF_ABS looks for the packet */
                                .src_reg = BPF_REG_1});
    read_field(code, offsetof(struct __sk_buff, len));
    pass_if(code, BPF_JLT, len_least);
    read_field(code, offsetof(struct __sk_buff, vlan_present));
    pass_if(code, BPF_JNE, 0);
}

static void end(struct code *code)
{
    set(code, BPF_REG_0, VERDICT_DROP);
    add(code, (struct bpf_insn){.code = BPF_JMP | BPF_EXIT});
    for (unsigned i = 0; i < code->exit_count; i++)
        code->at[code->exits[i]].off = (int16_t)(code->count - code->exits[i] - 1);
    set(code, BPF_REG_0, VERDICT_NEXT);
    add(code, (struct bpf_insn){.code = BPF_JMP | BPF_EXIT});
}

static void write_4(struct code *code, const struct sl_dpdk_address *address)
{
    begin(code, 42);
    want(code, BPF_H, 12, 0x0800);
    want(code, BPF_B, 14, 0x45); /* without options */
    want(code, BPF_B, 23, IPPROTO_UDP);
    want_address(code, 30, address->ip, 1);
    want(code, BPF_H, 36, address->udp_port);
    end(code);
}

static void write_6(struct code *code, const struct sl_dpdk_address *address)
{
    begin(code, 62);
    want(code, BPF_H, 12, 0x86dd);
    want(code, BPF_B, 20, IPPROTO_UDP);
    want_address(code, 38, address->ip6, 4);
    want(code, BPF_H, 56, address->udp_port);
    end(code);
}

static int call(int command, union bpf_attr *attr)
{
    long rc = syscall(SYS_bpf, command, attr, sizeof(*attr));

    return rc < 0 ? -errno : (int)rc;
}

/* A descriptor, or a negative errno. */
static int install(const struct code *code, const char *interface)
{
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_SCHED_CLS,
                           .insn_cnt = code->count,
                           .insns = (uintptr_t)code->at,
                           .license = (uintptr_t) "Dual BSD/GPL",
                           .expected_attach_type = TCX_INGRESS};
    union bpf_attr link = {0};
    int program = call(BPF_PROG_LOAD, &load), fd;

    if (program < 0)
        return program;
    link.link_create.prog_fd = (uint32_t)program;
    link.link_create.target_ifindex = if_nametoindex(interface);
    link.link_create.attach_type = TCX_INGRESS;
    fd = call(BPF_LINK_CREATE, &link);
    close(program);
    return fd;
}

void sl_dpdk_kernel_drop(struct sl_dpdk_port *port)
{
    const struct sl_dpdk_address *address = &port->address;
    char interface[IFNAMSIZ];
    struct code code;

    if (strncmp(port->spec.name, "net_af_packet", 13) != 0 ||
        !sl_dpdk_arg(port->spec.args, "iface", interface, sizeof(interface)))
        return;
    for (unsigned i = 0; i < 2; i++) {
        if (i == 0 ? address->ip[0] == 0 : address->prefix6 == 0)
            continue;
        (i == 0 ? write_4 : write_6)(&code, address);
        int fd = install(&code, interface);
        port->drop_fds[i] = fd >= 0 ? sl_fork_closes(fd) : -1;
        if (fd < 0)
            sl_info("dpdk",
                    "the kernel looks at the packets of port %s too, and throws them away: a BPF "
                    "program that spares it (tcx, Linux 6.6) is refused: %s",
                    port->name, strerror(-fd));
    }
}

void sl_dpdk_kernel_drop_end(struct sl_dpdk_port *port)
{
    for (unsigned i = 0; i < 2; i++) {
        if (port->drop_fds[i] >= 0)
            close(port->drop_fds[i]);
        port->drop_fds[i] = -1;
    }
}
