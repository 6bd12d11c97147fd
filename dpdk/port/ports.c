/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the list of ports. */
#include "core/err.h"
#include "dpdk/port/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* "0000:3b:00.0" or "3b:00.0", with its end. */
static bool is_pci(const char *name)
{
    unsigned domain, bus, slot, function;
    int end = 0;

    if (sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) == 4 &&
        name[end] == '\0')
        return true;
    end = 0;
    return sscanf(name, "%2x:%2x.%1x%n", &bus, &slot, &function, &end) == 3 && name[end] == '\0';
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

int sl_dpdk_memif_defaults(struct sl_dpdk_spec *spec)
{
    uint32_t frame = (spec->mtu != 0 ? spec->mtu : SL_DPDK_MTU_USUAL) + 14;
    char text[SL_DPDK_ARGS_MAX], arg[32];
    int err = 0;

    if (sl_dpdk_arg(spec->args, "bsize", text, sizeof(text))) {
        unsigned long bsize = strtoul(text, NULL, 10);

        if (spec->mtu != 0 && bsize < frame)
            return sl_fail(
                -EINVAL,
                "DPDK port '%s' has bsize=%s, and frames of %u bytes with that MTU: memif "
                "damages frames that do not fit into one buffer",
                spec->name, text, frame);
    } else {
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

    snprintf(out->name, sizeof(out->name), "%.*s", (int)len, entry->device);
    out->kind = is_pci(out->name) ? SL_DPDK_PCI : SL_DPDK_VDEV;
    if (len >= sizeof(out->name) || (out->kind == SL_DPDK_VDEV && !is_name(out->name)))
        return sl_fail(-EINVAL,
                       "'%.*s' of the list of DPDK ports is no PCI address (0000:3b:00.0), no name "
                       "of a virtual device (net_memif0), no ring:NAME/0 and no mesh:DIR",
                       (int)len, entry->device);
    if (out->kind == SL_DPDK_PCI && strchr(out->name, ':') == strrchr(out->name, ':')) {
        char name[SL_DPDK_NAME_MAX]; /* EAL's names have the domain */

        snprintf(name, sizeof(name), "0000:%.*s", (int)len, entry->device);
        memcpy(out->name, name, sizeof(name));
    }
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
        err = sl_dpdk_memif_defaults(out);
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
    struct sl_dpdk_port_settings settings = {.list = list, .local_count = 2};
    size_t count;

    return sl_dpdk_specs_parse(&settings, specs, SL_DPDK_PORTS_MAX, &count);
}
