/* SPDX-License-Identifier: Apache-2.0 */
/* What decides about algorithms: SLUICE_ALGO, and link costs as a file of the tune cache holds
 * them. The first byte chooses which. Costs that are taken let every collective find an algorithm;
 * a list of names is refused with a sentence or obeyed. */
#include "collectives/select.h"
#include "core/tune_cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t host[RANKS] = {0, 0, 1, 1};

static struct sluice_comm four_ranks(void)
{
    struct sluice_comm comm = {.rank = 1, .size = RANKS, .host = host, .host_count = 2};

    sl_config_defaults(&comm.config);
    comm.costs = (struct sl_costs){{250, 0.08}, {8000, 0.15}, 150, 0.03, 0.03, 10, 1};
    return comm;
}

/* -EINVAL with a sentence, or a choice that is explained. */
static int explain(const struct sluice_comm *comm, enum sl_coll coll)
{
    struct sl_call call = {.coll = coll, .dtype = SLUICE_F32, .op = SLUICE_SUM, .count = 1000};
    static char text[8192];
    FILE *out = fmemopen(text, sizeof(text), "w");

    sl_assert(out != NULL);
    int err = sl_select_explain(comm, &call, out);

    fclose(out);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    return err;
}

static void names(const uint8_t *data, size_t size)
{
    struct sluice_comm comm = four_ranks();

    if (size >= sizeof(comm.config.algo))
        size = sizeof(comm.config.algo) - 1;
    memcpy(comm.config.algo, data, size);
    comm.config.algo[size] = '\0';
    for (int coll = 0; coll < SL_COLL_COUNT; coll++)
        if (coll != SL_ALL_TO_ALL_V) {
            int err = explain(&comm, (enum sl_coll)coll);

            sl_assert(err == 0 || err == -EINVAL);
        }
}

/* A folder of its own, with the one file. */
static void put_file(struct sl_config *config, const uint8_t *data, size_t size)
{
    static char folder[] = "/tmp/sluice-fuzz-XXXXXX";
    static bool made;
    char path[64];

    sl_config_defaults(config);
    if (!made) {
        sl_assert(mkdtemp(folder) != NULL);
        made = true;
    }
    snprintf(config->tune_dir, sizeof(config->tune_dir), "%s", folder);
    snprintf(path, sizeof(path), "%s/links-0000000000000001", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    sl_assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static void remove_file(const struct sl_config *config)
{
    char path[SL_TEXT_MAX + 32];

    snprintf(path, sizeof(path), "%s/links-0000000000000001", config->tune_dir);
    unlink(path);
}

static void costs(const uint8_t *data, size_t size)
{
    const struct sl_costs_facts facts = {.ranks = 4, .ranks_per_core = 1, .maps = true};
    struct sluice_comm comm = four_ranks();
    struct sl_kept_costs kept;
    struct sl_config config;
    char text[SL_COSTS_SOURCE_MAX];
    bool usable;

    put_file(&config, data, size);
    if (sl_tune_cache_read(&config, 1, &kept, sizeof(kept)))
        sl_assert(size == sizeof(kept) + 8);
    else if (size >= sizeof(kept))
        memcpy(&kept, data,
               sizeof(kept)); /* as a false rank 0 could send it, without any trailer */
    else
        kept = (struct sl_kept_costs){.costs = comm.costs};
    remove_file(&config);
    usable = sl_kept_usable(&kept, &facts, kept.host, kept.measured_s);
    if (usable) {
        sl_kept_describe(&kept, text, sizeof(text));
        sl_assert(sl_costs_repair(&kept.costs, &facts) == 0);
    }
    if (!sl_costs_sane(&kept.costs) || !sl_correction_sane(&kept.correction))
        return;
    kept.costs.ranks_per_core = 1;
    comm.costs = kept.costs;
    comm.correction = kept.correction;
    for (int coll = 0; coll < SL_COLL_COUNT; coll++)
        if (coll != SL_ALL_TO_ALL_V)
            sl_assert(explain(&comm, (enum sl_coll)coll) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const part[])(const uint8_t *, size_t) = {names, costs};

    if (size > 0)
        part[*data % SL_ARRAY_LEN(part)](data + 1, size - 1);
    return 0;
}
