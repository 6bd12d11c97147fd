/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a process, read once at start from SLUICE_* variables.
 *
 * Rows that everybody has are those of core/config_rows.c. A transport or a tool brings a section:
 * its own rows, and a struct of its own that they are parsed into, which lies in sl_config.parts.
 * So a struct sl_config is plain data, to be copied, and the owner of a section finds its part.
 */
#ifndef SL_CORE_CONFIG_H
#define SL_CORE_CONFIG_H

#include "core/config_row.h"
#include "core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_CONFIG_PARTS_BYTES 12288
#define SL_CONFIG_SECTIONS 32

/* In the order of their rows' choices. */
enum sl_progress { SL_PROGRESS_CALLER, SL_PROGRESS_THREAD };
enum sl_publish { SL_PUBLISH_ON, SL_PUBLISH_OFF, SL_PUBLISH_KEEP };
enum sl_tune { SL_TUNE_AUTO, SL_TUNE_MEASURE, SL_TUNE_OFF };
enum sl_kernel { SL_KERNEL_AUTO, SL_KERNEL_AVX512, SL_KERNEL_AVX2, SL_KERNEL_NEON, SL_KERNEL_C };
enum sl_launcher {
    SL_LAUNCHER_AUTO,
    SL_LAUNCHER_NONE,
    SL_LAUNCHER_SLUICE,
    SL_LAUNCHER_TORCHRUN,
    SL_LAUNCHER_PMI,
    SL_LAUNCHER_PMIX,
    SL_LAUNCHER_OPENMPI,
    SL_LAUNCHER_SLURM,
};

/* As the rows write them. */
const char *sl_tune_name(enum sl_tune tune);
const char *sl_launcher_name(enum sl_launcher launcher);

/* One field per row of core/config_rows.c; names, units and meanings stand there. */
struct sl_config {
    /* who and where */
    int64_t rank, size, local_rank, local_size, require_secret;
    char root[SL_TEXT_MAX], job[SL_TEXT_MAX], secret[SL_TEXT_MAX], host_id[SL_TEXT_MAX];
    char interface[SL_TEXT_MAX], port_range[SL_TEXT_MAX];
    enum sl_launcher launcher;
    /* behaviour */
    char transport[SL_TEXT_MAX], algo[SL_TEXT_MAX], compress[SL_TEXT_MAX], log[SL_TEXT_MAX];
    char tune_dir[SL_TEXT_MAX], modules_dir[SL_TEXT_MAX], paths_table[SL_TEXT_MAX];
    char paths_agent[SL_TEXT_MAX];
    enum sl_progress progress;
    enum sl_publish state;
    enum sl_tune tune;
    enum sl_kernel kernel;
    int64_t timeout_ms, connect_timeout_ms, spin_us, inflight_max, chunk_bytes, link_weight;
    int64_t status_signal;
    /* windows, which ranks of one host share */
    int64_t shm_window_bytes, shm_stream_min_bytes;
    int64_t tcp_tls; /* other transports log that it does not cover them */
    /* of sections */
    _Alignas(8) unsigned char parts[SL_CONFIG_PARTS_BYTES];
};

struct sl_config_section {
    const char *area; /* what its variables start with, such as "TCP"; others' may not */
    const struct sl_config_row *rows;
    size_t row_count;
    size_t size; /* of the struct that the rows' fields are of */
    /* Checks that need the machine: -EINVAL; or NULL. */
    int (*check)(const struct sl_config *config);
    /* By sl_config_register(): */
    size_t at; /* in sl_config.parts */
    bool registered;
};

extern struct sl_config_section sl_config_common; /* its fields are those of struct sl_config */

/* Adds a section: before a struct sl_config is made that is to have it. Again: nothing happens.
 * -ENOSPC: there is no room; -EEXIST: one of its variables is there already. The section stays for
 * the life of the process. */
int sl_config_register(struct sl_config_section *section);

/* Those that are registered, the common one first; NULL behind the last. */
const struct sl_config_section *sl_config_section(unsigned idx);

/* Areas of variables that others read, NULL-terminated, static: a variable of theirs gets no
 * warning where they are not registered. */
void sl_config_others(const char *const *areas);

static inline const void *sl_config_part(const struct sl_config *config,
                                         const struct sl_config_section *section)
{
    sl_assert(section->registered);
    return config->parts + section->at;
}

static inline void *sl_config_part_edit(struct sl_config *config,
                                        const struct sl_config_section *section)
{
    sl_assert(section->registered);
    return config->parts + section->at;
}

/* For a section's header: sl_tcp_config(config) is its part, read only; sl_tcp_config_edit(config)
 * may be written. */
#define SL_CONFIG_SECTION(area)                                                                    \
    extern struct sl_config_section sl_##area##_section;                                           \
                                                                                                   \
    static inline const struct sl_##area##_config *sl_##area##_config(                             \
        const struct sl_config *config)                                                            \
    {                                                                                              \
        return sl_config_part(config, &sl_##area##_section);                                       \
    }                                                                                              \
                                                                                                   \
    static inline struct sl_##area##_config *sl_##area##_config_edit(struct sl_config *config)     \
    {                                                                                              \
        return sl_config_part_edit(config, &sl_##area##_section);                                  \
    }

/* The row of that name (without SLUICE_) and its section, which may be NULL; or NULL. */
const struct sl_config_row *sl_config_find(const char *name,
                                           const struct sl_config_section **section);

/* The struct that a section's rows are of. */
void *sl_config_base(struct sl_config *config, const struct sl_config_section *section);

/* Sets every field to its default. */
void sl_config_defaults(struct sl_config *config);

/* Sets one variable from text, as sl_config_row_set() does. name is without SLUICE_. -ENOENT: no
 * such variable, the text names the nearest. */
int sl_config_set(struct sl_config *config, const char *name, const char *value);

/* Defaults, then every SLUICE_* of envp (as environ). An unknown one gets a warning with the
 * nearest name, unless it is another's (sl_config_others); a bad value is -EINVAL. */
int sl_config_from_env(struct sl_config *config, char *const *envp);

/* The checks of all sections that need the machine: -EINVAL. */
int sl_config_check(const struct sl_config *config);

#endif
