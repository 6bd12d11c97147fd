/* SPDX-License-Identifier: Apache-2.0 */
/* Reads entries of a list of paths. */
#include "multipath/path_list.h"

#include "core/err.h"

#include <string.h>

/* A number in that base at *at, which moves behind it. -1: there is none, or it is above max. */
static int64_t take_number(const char **at, const char *end, unsigned base, uint32_t max)
{
    static const char digits[] = "0123456789abcdef";
    const char *start = *at;
    uint64_t number = 0;

    for (; *at < end; (*at)++) {
        char c = **at >= 'A' && **at <= 'F' ? (char)(**at - 'A' + 'a') : **at;
        const char *digit = memchr(digits, c, base);

        if (digit == NULL)
            break;
        number = number * base + (uint64_t)(digit - digits);
        if (number > max)
            return -1;
    }
    return *at == start ? -1 : (int64_t)number;
}

static int bad(const char *variable, const struct sl_path_entry *entry, const char *what)
{
    return sl_fail(-EINVAL, "%s: '%.*s' %s", variable, (int)entry->len, entry->text, what);
}

/* LOCAL>REMOTE[/LABEL][@PORT] */
static int read_entry(const char *variable, struct sl_path_entry *entry)
{
    const char *at = entry->text, *end = entry->text + entry->len;
    int64_t local, remote, label, port;

    local = take_number(&at, end, 10, SL_PATH_RAILS_MAX - 1);
    if (local < 0)
        return bad(variable, entry, "does not start with the number of a local rail (0 to 15)");
    if (at == end || *at++ != '>')
        return bad(variable, entry,
                   "lacks a '>' behind its local rail: LOCAL>REMOTE[/LABEL][@PORT]");
    remote = take_number(&at, end, 10, SL_PATH_RAILS_MAX - 1);
    if (remote < 0)
        return bad(variable, entry, "has no number of a remote rail (0 to 15) behind its '>'");
    entry->local = (unsigned)local;
    entry->remote = (unsigned)remote;
    entry->label = SL_PATH_LABEL_OPEN;
    entry->lag_port = 0;
    if (at < end && *at == '/') {
        at++;
        if (end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
            at += 2;
        label = take_number(&at, end, 16, SL_PATH_LABEL_MAX);
        if (label < 0 || (at < end && *at != '@'))
            return bad(variable, entry, "has no flow label in hex (0 to fffff) behind its '/'");
        entry->label = (uint32_t)label;
    }
    if (at == end)
        return 0;
    if (*at++ != '@')
        return bad(variable, entry, "goes on behind its rails, but not with /LABEL or @PORT");
    port = take_number(&at, end, 10, SL_PATH_LAG_PORTS_MAX);
    if (port < 1 || at != end)
        return bad(variable, entry, "has no port of a bond (1 to 4) behind its '@'");
    entry->lag_port = (unsigned)port;
    return 0;
}

bool sl_path_list_auto(const char *list)
{
    return list[0] == '\0' || strcmp(list, "auto") == 0;
}

int sl_path_entry_read(const char *variable, const char **at, struct sl_path_entry *out)
{
    struct sl_path_entry entry = {.text = *at, .len = strcspn(*at, ",")};
    int err = read_entry(variable, &entry);

    if (err != 0)
        return err;
    *out = entry;
    *at += entry.len;
    if (**at == '\0')
        return 1;
    (*at)++;
    return 0;
}

int sl_path_list_check(const char *variable, const char *list)
{
    struct sl_path_entry entry;
    int last = sl_path_list_auto(list);

    while (last == 0)
        last = sl_path_entry_read(variable, &list, &entry);
    return last < 0 ? last : 0;
}
