/* SPDX-License-Identifier: Apache-2.0 */
/* One word of the list of ports: its placeholders, and the options behind its device. */
#include "core/err.h"
#include "dpdk/port/spec.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_number(char placeholder, int number, char *out, size_t cap, size_t *at)
{
    if (number < 0)
        return sl_fail(
            -EINVAL,
            "the list of DPDK ports has %%%c, and this process does not know its rank%s: "
            "start it by a launcher that tells it, or write the number",
            placeholder, placeholder == 'l' ? " on its host" : "");
    *at += (size_t)snprintf(out + *at, cap - *at, "%d", number);
    return 0;
}

int sl_dpdk_word_expand(const char *word, size_t len, const struct sl_dpdk_port_settings *settings,
                        char *out, size_t cap)
{
    size_t at = 0;

    for (size_t i = 0; i < len; i++) {
        int err = 0;

        if (at + 12 > cap) /* of the longest number, and the end */
            return sl_fail(-EINVAL, "a word of the list of DPDK ports is longer than %zu bytes",
                           cap - 12);
        if ((unsigned char)word[i] <= ' ' || (unsigned char)word[i] > '~')
            return sl_fail(-EINVAL, "the list of DPDK ports has byte 0x%02x, which is no letter",
                           (unsigned char)word[i]);
        if (word[i] != '%') {
            out[at++] = word[i];
            continue;
        }
        char which = i + 1 < len ? word[++i] : '\0';
        if (which == '%')
            out[at++] = '%';
        else if (which == 'l')
            err = add_number('l', settings->local_rank, out, cap, &at);
        else if (which == 'r')
            err = add_number('r', settings->rank, out, cap, &at);
        else
            err = sl_fail(-EINVAL,
                          "'%.*s' of the list of DPDK ports has a percent sign before "
                          "something else than l, r or %%",
                          (int)len, word);
        if (err != 0)
            return err;
    }
    out[at] = '\0';
    return 0;
}

/* Digits alone, and nothing behind them. */
static bool parse_number(const char *text, unsigned long most, unsigned long *out)
{
    char *end;

    if (*text < '0' || *text > '9' || strlen(text) > 6)
        return false;
    *out = strtoul(text, &end, 10);
    return *end == '\0' && *out <= most;
}

static bool parse_address(const char *text, uint8_t out[4])
{
    if (inet_pton(AF_INET, text, out) != 1)
        return false;
    return out[0] != 0 && out[0] != 127 && out[0] < 224;
}

/* Not of nobody, of this host, of a group, or one of IPv4 in another dress. */
static bool parse_address6(const char *text, uint8_t out[16])
{
    struct in6_addr ip;

    if (inet_pton(AF_INET6, text, &ip) != 1 || IN6_IS_ADDR_UNSPECIFIED(&ip) ||
        IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_MULTICAST(&ip) || IN6_IS_ADDR_V4MAPPED(&ip))
        return false;
    memcpy(out, &ip, sizeof(ip));
    return true;
}

static bool is_ip6(const char *value)
{
    return strchr(value, ':') != NULL;
}

static int option_ip(const char *value, struct sl_dpdk_entry *entry)
{
    struct sl_dpdk_spec *options = &entry->options;
    const char *slash = strchr(value, '/');
    char text[INET6_ADDRSTRLEN];
    unsigned long prefix;

    if (slash == NULL || (size_t)(slash - value) >= sizeof(text))
        return -EINVAL;
    memcpy(text, value, (size_t)(slash - value));
    text[slash - value] = '\0';
    if (!(is_ip6(text) ? parse_address6(text, options->ip6) : parse_address(text, options->ip)) ||
        !parse_number(slash + 1, is_ip6(text) ? 128 : 32, &prefix) || prefix == 0)
        return -EINVAL;
    *(is_ip6(text) ? &options->prefix6 : &options->prefix) = (uint8_t)prefix;
    return 0;
}

static int option_gw(const char *value, struct sl_dpdk_entry *entry)
{
    bool fits = is_ip6(value) ? parse_address6(value, entry->options.gateway6)
                              : parse_address(value, entry->options.gateway);

    return fits ? 0 : -EINVAL;
}

static int option_mtu(const char *value, struct sl_dpdk_entry *entry)
{
    unsigned long mtu;

    if (!parse_number(value, SL_DPDK_MTU_MOST, &mtu) || mtu < SL_DPDK_MTU_LEAST)
        return -EINVAL;
    entry->options.mtu = (uint32_t)mtu;
    return 0;
}

static int option_segment(const char *value, struct sl_dpdk_entry *entry)
{
    if (*value == '\0' || strlen(value) >= sizeof(entry->options.segment))
        return -EINVAL;
    strcpy(entry->options.segment, value);
    return 0;
}

static int option_rank(const char *value, struct sl_dpdk_entry *entry)
{
    unsigned long number;

    if (!parse_number(value, SL_DPDK_PORTS_MAX, &number))
        return -EINVAL;
    entry->rank = (int)number;
    return 0;
}

static int option_ranks(const char *value, struct sl_dpdk_entry *entry)
{
    unsigned long number;

    if (!parse_number(value, SL_DPDK_PORTS_MAX + 1, &number) || number < 2)
        return -EINVAL;
    entry->ranks = (int)number;
    return 0;
}

static const struct option {
    const char *key;
    int (*read)(const char *value, struct sl_dpdk_entry *entry);
    const char *form;
    bool by_family; /* once of IPv4, and once of IPv6 */
} options[] = {
    {"ip", option_ip,
     "an address of a host and the bits of its subnet, as 10.1.0.2/24 or fd00:1::2/64", true},
    {"gw", option_gw, "the address of a gateway, as 10.1.0.1 or fe80::1", true},
    {"mtu", option_mtu, "bytes of the largest IP packet, 576 to 16384", false},
    {"segment", option_segment, "a name of 1 to 63 letters", false},
    {"rank", option_rank, "this rank's number in the mesh, 0 to 16", false},
    {"ranks", option_ranks, "how many ranks the mesh has, 2 to 17", false},
};

static int read_option(const char *text, size_t len, struct sl_dpdk_entry *entry, unsigned *seen)
{
    char word[SL_DPDK_ARGS_MAX];
    char *equals;

    if (len >= sizeof(word))
        return sl_fail(-EINVAL, "an option of DPDK port '%s' is longer than %zu bytes",
                       entry->device, sizeof(word) - 1);
    memcpy(word, text, len);
    word[len] = '\0';
    equals = strchr(word, '=');
    if (equals != NULL)
        *equals = '\0';
    for (unsigned i = 0; i < SL_ARRAY_LEN(options); i++) {
        if (strcmp(word, options[i].key) != 0)
            continue;
        bool again = options[i].by_family && equals != NULL && is_ip6(equals + 1);
        unsigned bit = 1u << (2 * i + again);
        if (*seen & bit)
            return sl_fail(-EINVAL, "DPDK port '%s' has @%s= twice", entry->device, word);
        *seen |= bit;
        if (equals == NULL || options[i].read(equals + 1, entry) != 0)
            return sl_fail(-EINVAL, "DPDK port '%s' has @%s%s%s, which should be %s", entry->device,
                           word, equals != NULL ? "=" : "", equals != NULL ? equals + 1 : "",
                           options[i].form);
        return 0;
    }
    return sl_fail(-EINVAL,
                   "DPDK port '%s' has the option '%s', which is none of ip gw mtu segment rank "
                   "ranks",
                   entry->device, word);
}

int sl_dpdk_word_split(const char *word, struct sl_dpdk_entry *out)
{
    size_t len = strcspn(word, "@");
    unsigned seen = 0;

    memset(out, 0, sizeof(*out));
    out->rank = out->ranks = -1;
    if (len == 0 || len >= sizeof(out->device))
        return sl_fail(-EINVAL, "'%s' of the list of DPDK ports names no device", word);
    memcpy(out->device, word, len);
    for (word += len; *word == '@'; word += len) {
        word++;
        len = strcspn(word, "@");
        int err = read_option(word, len, out, &seen);
        if (err != 0)
            return err;
    }
    return 0;
}
