/* SPDX-License-Identifier: Apache-2.0 */
/* Reads SLUICE_ALGO: items between commas, NAME or COLLECTIVE:NAME. */
#include "collectives/select.h"

#include "core/err.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define SETTING "SLUICE_ALGO (or algo of struct sluice_config)"

struct item {
    const char *coll; /* NULL: every one that the algorithm does */
    size_t coll_len;
    const char *name;
    size_t name_len;
};

/* Reads the item at *at and moves on to the next. false: there is none. */
static bool next_item(const char **at, struct item *out)
{
    size_t len = strcspn(*at, ",");
    const char *colon = memchr(*at, ':', len);

    if (**at == '\0')
        return false;
    *out = (struct item){.name = *at, .name_len = len};
    if (colon != NULL) {
        out->coll = *at;
        out->coll_len = (size_t)(colon - *at);
        out->name = colon + 1;
        out->name_len = len - out->coll_len - 1;
    }
    *at += len + ((*at)[len] == ',');
    return true;
}

/* all_gather is also allgather, AllGather and all-gather. */
static bool is_coll(enum sl_coll coll, const char *text, size_t len)
{
    const char *name = sl_coll_name(coll), *end = text + len;

    for (;;) {
        name += *name == '_';
        while (text < end && (*text == '_' || *text == '-'))
            text++;
        if (*name == '\0' || text == end)
            return *name == '\0' && text == end;
        if (*name++ != tolower((unsigned char)*text++))
            return false;
    }
}

static int find_coll(const char *text, size_t len)
{
    for (int coll = 0; coll < SL_COLL_COUNT; coll++)
        if (is_coll((enum sl_coll)coll, text, len))
            return coll;
    return -1;
}

const struct sl_algo *sl_algo_find(const char *name, size_t len)
{
    for (const struct sl_algo *const *a = sl_algos; *a != NULL; a++)
        if (strlen((*a)->name) == len && strncasecmp((*a)->name, name, len) == 0)
            return *a;
    return NULL;
}

int sl_forced_algo(const char *setting, enum sl_coll coll, const struct sl_algo **out)
{
    struct item item;

    *out = NULL;
    while (next_item(&setting, &item)) {
        const struct sl_algo *algo = sl_algo_find(item.name, item.name_len);

        if (algo == NULL)
            return sl_fail(-EINVAL,
                           SETTING " names '%.*s', which is no algorithm; see "
                                   "sluice-bench --list",
                           (int)item.name_len, item.name);
        if ((item.coll == NULL || is_coll(coll, item.coll, item.coll_len)) &&
            (algo->colls & 1u << coll) != 0)
            *out = algo;
    }
    return 0;
}

int sl_forced_check(const char *setting)
{
    const struct sl_algo *algo;
    const char *at = setting;
    struct item item;
    int err = sl_forced_algo(setting, SL_ALLREDUCE, &algo);

    while (err == 0 && next_item(&at, &item)) {
        int coll = item.coll != NULL ? find_coll(item.coll, item.coll_len) : 0;

        if (coll < 0)
            return sl_fail(-EINVAL,
                           SETTING " names '%.*s', which is no collective; see sluice-bench "
                                   "--list",
                           (int)item.coll_len, item.coll);
        algo = sl_algo_find(item.name, item.name_len);
        if (item.coll != NULL && (algo->colls & 1u << coll) == 0)
            return sl_fail(-EINVAL,
                           SETTING " forces %s for %s, which it does not do; see sluice-bench "
                                   "--list",
                           algo->name, sl_coll_name((enum sl_coll)coll));
    }
    return err;
}
