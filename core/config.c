/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of variables, and how the environment is read into them. */
#include "core/config.h"

#include "core/err.h"
#include "core/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who registers */
static struct sl_config_section *sections[SL_CONFIG_SECTIONS] = {&sl_config_common};
static _Atomic unsigned section_count = 1;
static size_t parts_used;
static const char *const *_Atomic others;

/* ---- sections ---- */

static int check_names(const struct sl_config_section *section)
{
    for (size_t i = 0; i < section->row_count; i++)
        if (sl_config_find(section->rows[i].name, NULL) != NULL)
            return sl_fail(-EEXIST, "there is a variable " SL_CONFIG_PREFIX "%s already",
                           section->rows[i].name);
    return 0;
}

int sl_config_register(struct sl_config_section *section)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    unsigned count = atomic_load(&section_count);
    size_t size = (section->size + 7) & ~(size_t)7;

    if (!section->registered)
        err = check_names(section);
    if (!section->registered && err == 0 &&
        (count == SL_CONFIG_SECTIONS || size > SL_CONFIG_PARTS_BYTES - parts_used))
        err = sl_fail(-ENOSPC, "there is no room for the variables " SL_CONFIG_PREFIX "%s_*",
                      section->area);
    if (!section->registered && err == 0) {
        section->at = parts_used;
        section->registered = true;
        parts_used += size;
        sections[count] = section;
        atomic_store(&section_count, count + 1);
    }
    pthread_mutex_unlock(&lock);
    return err;
}

const struct sl_config_section *sl_config_section(unsigned idx)
{
    return idx < atomic_load(&section_count) ? sections[idx] : NULL;
}

void sl_config_others(const char *const *areas)
{
    atomic_store(&others, areas);
}

const struct sl_config_row *sl_config_find(const char *name,
                                           const struct sl_config_section **section)
{
    const struct sl_config_section *at;

    for (unsigned i = 0; (at = sl_config_section(i)) != NULL; i++)
        for (size_t j = 0; j < at->row_count; j++)
            if (strcmp(at->rows[j].name, name) == 0) {
                if (section != NULL)
                    *section = at;
                return &at->rows[j];
            }
    return NULL;
}

void *sl_config_base(struct sl_config *config, const struct sl_config_section *section)
{
    return section == &sl_config_common ? (void *)config : config->parts + section->at;
}

/* ---- names that are none ---- */

/* Levenshtein distance, for names of at most 63 bytes. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[64], len = (unsigned)strnlen(b, 63);

    for (unsigned j = 0; j <= len; j++)
        row[j] = j;
    for (unsigned i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0];

        row[0] = i + 1;
        for (unsigned j = 0; j < len; j++) {
            unsigned keep = row[j + 1];
            unsigned best = diagonal + (a[i] != b[j]);

            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (keep + 1 < best)
                best = keep + 1;
            row[j + 1] = best;
            diagonal = keep;
        }
    }
    return row[len];
}

static const char *nearest_name(const char *name)
{
    const struct sl_config_section *at;
    const char *best = "";
    unsigned best_distance = ~0u;

    for (unsigned i = 0; (at = sl_config_section(i)) != NULL; i++)
        for (size_t j = 0; j < at->row_count; j++) {
            unsigned d = distance(name, at->rows[j].name);

            if (d < best_distance) {
                best_distance = d;
                best = at->rows[j].name;
            }
        }
    return best;
}

static bool is_of_area(const char *name, const char *area)
{
    size_t len = strlen(area);

    return len > 0 && strncmp(name, area, len) == 0 && (name[len] == '_' || name[len] == '\0');
}

/* Others read that variable, and they are not here to say whether there is one of that name. */
static bool is_others(const char *name)
{
    const char *const *areas = atomic_load(&others);
    const struct sl_config_section *at;

    for (unsigned i = 0; (at = sl_config_section(i)) != NULL; i++)
        if (is_of_area(name, at->area))
            return false;
    for (; areas != NULL && *areas != NULL; areas++)
        if (is_of_area(name, *areas))
            return true;
    return false;
}

/* ---- values ---- */

void sl_config_defaults(struct sl_config *config)
{
    const struct sl_config_section *at;

    memset(config, 0, sizeof(*config));
    for (unsigned i = 0; (at = sl_config_section(i)) != NULL; i++)
        for (size_t j = 0; j < at->row_count; j++)
            sl_assert(sl_config_row_set(&at->rows[j], sl_config_base(config, at),
                                        at->rows[j].value) == 0);
}

int sl_config_set(struct sl_config *config, const char *name, const char *value)
{
    const struct sl_config_section *section;
    const struct sl_config_row *row = sl_config_find(name, &section);

    if (row != NULL)
        return sl_config_row_set(row, sl_config_base(config, section), value);
    return sl_fail(-ENOENT,
                   "there is no variable " SL_CONFIG_PREFIX "%s; the nearest is " SL_CONFIG_PREFIX
                   "%s",
                   name, nearest_name(name));
}

/* -ENOENT: there is no such variable, which is news to people. */
static int set_from_entry(struct sl_config *config, const char *entry)
{
    const char *equals = strchr(entry, '=');
    char name[64];

    if (equals == NULL || (size_t)(equals - entry) >= sizeof(name))
        return 0;
    memcpy(name, entry, (size_t)(equals - entry));
    name[equals - entry] = '\0';
    if (equals[1] == '\0')
        return 0; /* set but empty means the default, as in most tools */
    int err = sl_config_set(config, name, equals + 1);

    return err == -ENOENT && is_others(name) ? 0 : err;
}

/* Once for a process, and for those that it forks: the environment is read again for each
 * communicator. */
static bool is_news(const char *entry)
{
    static _Atomic uint32_t warned[32];
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *entry != '\0' && *entry != '='; entry++)
        hash = (hash ^ (unsigned char)*entry) * 16777619u;
    hash |= 1; /* 0 stands for nothing */
    for (size_t i = 0; i < SL_ARRAY_LEN(warned); i++) {
        uint32_t none = 0;

        if (atomic_compare_exchange_strong(&warned[i], &none, hash))
            return true;
        if (none == hash)
            return false;
    }
    return true;
}

int sl_config_from_env(struct sl_config *config, char *const *envp)
{
    size_t prefix = strlen(SL_CONFIG_PREFIX);

    sl_config_defaults(config);
    for (; envp != NULL && *envp != NULL; envp++) {
        if (strncmp(*envp, SL_CONFIG_PREFIX, prefix) != 0)
            continue;
        int err = set_from_entry(config, *envp + prefix);

        if (err == -ENOENT && is_news(*envp))
            sl_warn("config", "%s", sluice_last_error());
        if (err != 0 && err != -ENOENT)
            return err;
    }
    return 0;
}

int sl_config_check(const struct sl_config *config)
{
    const struct sl_config_section *at;
    int err = 0;

    for (unsigned i = 0; (at = sl_config_section(i)) != NULL && err == 0; i++)
        err = at->check != NULL ? at->check(config) : 0;
    return err;
}
