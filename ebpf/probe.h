/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BPF programs in the kernel. An object is what one file NAME.bpf.c became: programs and maps,
 * embedded at build. One object is one probe, opened by itself, so that one that this kernel
 * refuses takes no other with it.
 *
 *     sl_bpf_load("xmit", programs, &bpf); sl_bpf_put(bpf, "settings", ...); sl_bpf_attach(bpf)
 *     sl_bpf_list(bpf, "devices", ...), once a period
 *     sl_bpf_close(bpf)
 *
 * Where the tools to build them were missing, all of this is absent.c: -ENOTSUP, with a sentence.
 */
#ifndef SL_EBPF_PROBE_H
#define SL_EBPF_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_bpf;
struct sl_bpf_settings;

/*
 * Puts those programs of an object (their names, NULL at the end) into the kernel; its others stay
 * out. -EPERM: what it lacks to be allowed that. -ENOTSUP: this kernel has no such tracepoint or
 * function, or forbids such programs. -ENOENT: no such object. Others: the kernel refused it, and
 * the sentence has its first words.
 */
int sl_bpf_load(const char *object, const char *const *programs, struct sl_bpf **out);
/* Programs run from here on. All, or none. -ENOTSUP: this kernel has nothing to attach to. */
int sl_bpf_attach(struct sl_bpf *bpf);
/* They run no more; maps stay, and it may be attached again. */
void sl_bpf_detach(struct sl_bpf *bpf);
void sl_bpf_close(struct sl_bpf *bpf); /* NULL: nothing */

/*
 * The first of several ways to do the same (lists of programs, as above) that this kernel takes:
 * loaded, its map "settings" filled unless settings is NULL, and attached. Fails as the last of
 * them did.
 */
int sl_bpf_open_first(const char *object, const char *const *const *ways, unsigned count,
                      const struct sl_bpf_settings *settings, struct sl_bpf **out);

/* ---- maps, by name; a name that the object has not is our mistake ---- */

/* A value of count numbers for each processor, as a map of one such entry has: their sums. */
int sl_bpf_sums(struct sl_bpf *bpf, const char *map, uint64_t *out, unsigned count);
/* All entries of a hash, at most so many; keys and values are arrays. How many there were. */
int sl_bpf_list(struct sl_bpf *bpf, const char *map, void *keys, void *values, unsigned most);
int sl_bpf_get(struct sl_bpf *bpf, const char *map, const void *key, void *value);
int sl_bpf_put(struct sl_bpf *bpf, const char *map, const void *key, const void *value);
void sl_bpf_remove(struct sl_bpf *bpf, const char *map, const void *key);

/* ---- events, of a map that is a ring ---- */

/* fn gets each of at least size bytes; shorter ones are passed over. */
int sl_bpf_ring_open(struct sl_bpf *bpf, const char *map, size_t size,
                     void (*fn)(void *arg, const void *event), void *arg);
int sl_bpf_ring_fd(const struct sl_bpf *bpf); /* -1: no ring */
/* At most so many events. How many there were. */
int sl_bpf_ring_read(struct sl_bpf *bpf, unsigned most);

/* ---- what this kernel has ---- */

/* Names of an enum of the kernel, from its types (BTF). -ENOTSUP: it has no types, or no such. */
int sl_bpf_enum(const char *name, void (*fn)(void *arg, const char *name, uint64_t value),
                void *arg);

/* Types of modules, such as those of RDMA, the kernel gives to CAP_SYS_ADMIN alone. */
bool sl_bpf_may_read_modules(void);

#endif
