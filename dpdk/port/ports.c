/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the list of ports. */
#include "core/err.h"
#include "dpdk/port/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

bool sl_dpdk_arg(const char *args, const char *key, char *out, size_t cap)
{
    size_t key_len = strlen(key);

    while (*args != '\0') {
        size_t len = strcspn(args, ",");

        if (len > key_len && args[key_len] == '=' && strncmp(args, key, key_len) == 0) {
            snprintf(out, cap, "%.*s", (int)(len - key_len - 1), args + key_len + 1);
            return true;
        }
        args += len;
        args += *args == ',';
    }
    if (cap > 0)
        *out = '\0';
    return false;
}

/* What EAL calls "0000:3B:00.0" or "3b:0.0": with a domain, all digits, and small letters. False:
 * it is no PCI address. */
static bool pci_name(const char *name, char *out, size_t cap)
{
    unsigned domain, bus, slot, function;
    int end = 0;

    if (!isxdigit((unsigned char)*name))
        return false;
    if (sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) != 4 ||
        name[end] != '\0') {
        domain = 0;
        end = 0;
        if (sscanf(name, "%2x:%2x.%1x%n", &bus, &slot, &function, &end) != 3 || name[end] != '\0')
            return false;
    }
    snprintf(out, cap, "%04x:%02x:%02x.%x", domain, bus, slot, function);
    return true;
}

static bool is_name(const char *name)
{
    if (!isalpha((unsigned char)*name))
        return false;
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && strchr("_-.", *name) == NULL)
            return false;
    }
    return true;
}

/* "NAME/0" or "NAME/1". */
static bool is_ring_end(const char *name)
{
    size_t len = strlen(name);
    char wire[SL_DPDK_NAME_MAX];

    if (len < 3 || len >= 24 || name[len - 2] != '/' || (name[len - 1] & ~1) != '0')
        return false;
    snprintf(wire, sizeof(wire), "%.*s", (int)len - 2, name);
    return is_name(wire);
}

static int append(struct sl_dpdk_spec *spec, const char *arg)
{
    if (!sl_text_add(spec->args, sizeof(spec->args), "%s%s", *spec->args != '\0' ? "," : "", arg))
        return sl_fail(-EINVAL, "the arguments of DPDK port '%s' are longer than %d bytes",
                       spec->name, SL_DPDK_ARGS_MAX - 1);
    return 0;
}

/* The driver throws all of its arguments away where it does not know one, and says nothing. */
static int check_memif_keys(const struct sl_dpdk_spec *spec)
{
    static const char *const keys[] = {
        "id",        "role",      "bsize", "rsize",     "socket", "socket-abstract",
        "owner-uid", "owner-gid", "mac",   "zero-copy", "secret"};

    for (const char *at = spec->args; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        size_t len = strcspn(at, ",="), i = 0;

        while (i < SL_ARRAY_LEN(keys) && (strlen(keys[i]) != len || strncmp(at, keys[i], len) != 0))
            i++;
        if (i == SL_ARRAY_LEN(keys) || at[len] != '=')
            return sl_fail(
                -EINVAL,
                "DPDK port '%s' has the argument '%.*s', which is none of memif's: id role "
                "socket socket-abstract bsize rsize mac secret owner-uid owner-gid",
                spec->name, (int)strcspn(at, ","), at);
    }
    return 0;
}

/* Of what the driver takes, and does wrong with ours. */
static int check_memif(const struct sl_dpdk_spec *spec)
{
    char text[SL_DPDK_ARGS_MAX];

    if (sl_dpdk_arg(spec->args, "socket", text, sizeof(text)) &&
        strlen(text) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return sl_fail(-EINVAL,
                       "DPDK port '%s' has a socket with a path of %zu bytes, and %zu are the most",
                       spec->name, strlen(text), sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    if (sl_dpdk_arg(spec->args, "zero-copy", text, sizeof(text)) && strcmp(text, "no") != 0)
        return sl_fail(
            -EINVAL,
            "DPDK port '%s' has zero-copy=%s, which sends memory of DPDK's alone: leave it "
            "away",
            spec->name, text);
    return 0;
}

int sl_dpdk_memif_defaults(struct sl_dpdk_spec *spec, uint32_t least)
{
    uint32_t frame = (spec->mtu != 0 ? spec->mtu : SL_DPDK_MTU_USUAL) + 14;
    char text[SL_DPDK_ARGS_MAX], arg[32];
    int err = check_memif_keys(spec);

    if (err == 0)
        err = check_memif(spec);
    if (err != 0)
        return err;
    if (sl_dpdk_arg(spec->args, "bsize", text, sizeof(text))) {
        unsigned long bsize = strtoul(text, NULL, 10);

        if (spec->mtu != 0 && bsize < frame)
            return sl_fail(
                -EINVAL,
                "DPDK port '%s' has bsize=%s, and frames of %u bytes with that MTU: memif "
                "damages frames that do not fit into one buffer",
                spec->name, text, frame);
    } else {
        frame = frame > least ? frame : least;
        snprintf(arg, sizeof(arg), "bsize=%u", (frame + 255) / 256 * 256);
        err = append(spec, arg);
    }
    if (err == 0 && !sl_dpdk_arg(spec->args, "socket-abstract", text, sizeof(text)))
        err = append(spec, "socket-abstract=no");
    return err;
}

/* A device that is none of ours: as EAL takes it. */
static int read_device(const struct sl_dpdk_entry *entry, struct sl_dpdk_spec *out)
{
    size_t len = strcspn(entry->device, ",");
    const char *args = entry->device + len;

    char name[SL_DPDK_NAME_MAX];

    snprintf(name, sizeof(name), "%.*s", (int)len, entry->device);
    snprintf(out->name, sizeof(out->name), "%s", name);
    out->kind = pci_name(name, out->name, sizeof(out->name)) ? SL_DPDK_PCI : SL_DPDK_VDEV;
    if (len >= sizeof(out->name) || (out->kind == SL_DPDK_VDEV && !is_name(out->name)))
        return sl_fail(-EINVAL,
                       "'%.*s' of the list of DPDK ports is no PCI address (0000:3b:00.0), no name "
                       "of a virtual device (net_memif0), no ring:NAME/0 and no mesh:DIR",
                       (int)len, entry->device);
    if (*args == '\0')
        return 0;
    args++;
    if (*args == '\0' || args[strlen(args) - 1] == ',' || *args == ',' ||
        strstr(args, ",,") != NULL)
        return sl_fail(-EINVAL, "the arguments of DPDK port '%s' have an empty one: '%s'",
                       out->name, args);
    snprintf(out->args, sizeof(out->args), "%s", args);
    return 0;
}

static int read_entry(const struct sl_dpdk_entry *entry,
                      const struct sl_dpdk_port_settings *settings, struct sl_dpdk_spec *out,
                      size_t cap, size_t *count)
{
    int err = 0;

    if (strncmp(entry->device, "mesh:", 5) == 0)
        return sl_dpdk_mesh_expand(entry, settings, out, cap, count);
    if (entry->rank >= 0 || entry->ranks >= 0)
        return sl_fail(-EINVAL, "DPDK port '%s' has @rank or @ranks, which only a mesh has",
                       entry->device);
    *count = 1;
    if (cap == 0)
        return 0;
    *out = entry->options;
    if (strncmp(entry->device, "ring:", 5) != 0) {
        err = read_device(entry, out);
    } else if (is_ring_end(entry->device + 5)) {
        out->kind = SL_DPDK_RING;
        snprintf(out->name, sizeof(out->name), "%s", entry->device);
    } else {
        err = sl_fail(-EINVAL,
                      "DPDK port '%s' should be ring:NAME/0 or ring:NAME/1 with up to 21 letters",
                      entry->device);
    }
    if (err == 0 && strncmp(out->name, "net_memif", 9) == 0)
        err = sl_dpdk_memif_defaults(out, SL_DPDK_MEMIF_BUFFER);
    return err;
}

static int check_names(const struct sl_dpdk_spec *specs, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(specs[i].name, specs[j].name) == 0)
                return sl_fail(-EINVAL, "the list of DPDK ports has '%s' twice", specs[i].name);
        }
    }
    return 0;
}

int sl_dpdk_specs_parse(const struct sl_dpdk_port_settings *settings, struct sl_dpdk_spec *out,
                        size_t cap, size_t *count)
{
    const char *at = settings->list != NULL ? settings->list : "";
    size_t have = 0;

    for (;;) {
        char word[2 * SL_DPDK_ARGS_MAX];
        struct sl_dpdk_entry entry;
        size_t more = 0;

        at += strspn(at, " \t\n");
        size_t len = strcspn(at, " \t\n");
        if (len == 0)
            break;
        int err = sl_dpdk_word_expand(at, len, settings, word, sizeof(word));
        if (err == 0)
            err = sl_dpdk_word_split(word, &entry);
        if (err == 0)
            err = read_entry(&entry, settings, out + have, cap - have, &more);
        if (err != 0)
            return err;
        if (more > cap - have)
            return sl_fail(-EINVAL, "the list of DPDK ports has more than %zu ports", cap);
        have += more;
        at += len;
    }
    *count = have;
    return check_names(out, have);
}

int sl_dpdk_ports_check(const char *list)
{
    struct sl_dpdk_spec specs[SL_DPDK_PORTS_MAX];
    struct sl_dpdk_port_settings settings = {.list = list, .local_count = SL_DPDK_COUNT_ANY};
    size_t count;

    return sl_dpdk_specs_parse(&settings, specs, SL_DPDK_PORTS_MAX, &count);
}
