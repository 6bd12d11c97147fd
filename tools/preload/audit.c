/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsluice-audit.so, for LD_AUDIT: programs that open NCCL themselves and ask for its functions by
 * dlsym() never look at libsluice-preload.so. The dynamic linker asks an audit library about every
 * such answer; where the shim, preloaded beside, has an entry point of that name, it is given
 * instead. See rtld-audit(7).
 *
 * An audit library lives in a name space of its own, with a libc of its own. So it calls nothing of
 * the program's: it finds the shim by its link map and reads that one's symbol table. No NCCL:
 * nothing is done, and lookups of other libraries are not asked about.
 */
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* What of the shim's dynamic section a lookup needs. */
static struct {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    uint32_t count;
} shim;

static const struct link_map *shim_map;

EXPORT unsigned la_version(unsigned version);
EXPORT unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie);
EXPORT uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                              unsigned *flags, const char *name);

unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

static bool is_file(const char *path, const char *start)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash != NULL ? slash + 1 : path, start, strlen(start)) == 0;
}

/* The number of symbols is in no entry of its own: the last chain of the GNU hash table ends with
 * it. */
static uint32_t count_symbols(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], last = 0;
    const uint32_t *bucket = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / 4),
                   *chain = bucket + buckets;

    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while ((chain[last - first] & 1) == 0)
        last++;
    return last + 1;
}

static void remember(const struct link_map *map)
{
    shim.base = map->l_addr;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            shim.symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            shim.strings = (const char *)d->d_un.d_ptr;
        else if (d->d_tag == DT_GNU_HASH)
            shim.count = count_symbols((const uint32_t *)d->d_un.d_ptr);
    }
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    *cookie = (uintptr_t)map;
    if (space != LM_ID_BASE)
        return 0;
    if (is_file(map->l_name, "libsluice-preload.so"))
        shim_map = map;
    return is_file(map->l_name, "libnccl.so") ? LA_FLG_BINDTO : 0;
}

static uintptr_t entry_point(const char *name)
{
    for (uint32_t i = 1; i < shim.count; i++)
        if (shim.symbols[i].st_shndx != SHN_UNDEF &&
            strcmp(shim.strings + shim.symbols[i].st_name, name) == 0)
            return shim.base + shim.symbols[i].st_value;
    return 0;
}

uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name)
{
    uintptr_t ours;

    (void)index;
    (void)to;
    /* The shim itself looks for the originals. */
    if (shim_map == NULL || *from == (uintptr_t)shim_map || (*flags & LA_SYMB_DLSYM) == 0)
        return symbol->st_value;
    if (shim.count == 0)
        remember(shim_map); /* not before: its addresses were not relocated when it was opened */
    ours = entry_point(name);
    return ours != 0 ? ours : symbol->st_value;
}
