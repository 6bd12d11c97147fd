/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of SLUICE_* variables, read once at start into struct sl_config. */
#ifndef SL_CORE_CONFIG_H
#define SL_CORE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#define SL_TEXT_MAX 256

/* Values of three-way settings. */
enum sl_switch { SL_AUTO = -1, SL_OFF = 0, SL_ON = 1 };

/* One field per row of the table in config.c; names, units and meanings stand there. */
struct sl_config {
    /* who and where */
    int64_t rank, size, local_rank, require_secret;
    char root[SL_TEXT_MAX], job[SL_TEXT_MAX], secret[SL_TEXT_MAX], host_id[SL_TEXT_MAX];
    char interface[SL_TEXT_MAX], port_range[SL_TEXT_MAX], launcher[SL_TEXT_MAX];
    /* behaviour */
    char transport[SL_TEXT_MAX], algo[SL_TEXT_MAX], log[SL_TEXT_MAX], kernel[SL_TEXT_MAX];
    char preload[SL_TEXT_MAX], preload_nccl[SL_TEXT_MAX];
    char progress[SL_TEXT_MAX], tune[SL_TEXT_MAX], tune_dir[SL_TEXT_MAX];
    int64_t timeout_ms, connect_timeout_ms, spin_us, inflight_max, chunk_bytes;
    int64_t status_signal, bind, preload_exact, preload_mpi_early_calls;
    /* shm */
    int64_t shm_ring_bytes, shm_window_bytes, shm_stream_min_bytes, shm_read;
    /* tcp */
    int64_t tcp_connections, tcp_crc, tcp_tls, tcp_socket_bytes, tcp_stripe_bytes;
    char tcp_engine[SL_TEXT_MAX], tcp_congestion[SL_TEXT_MAX];
    char tcp_tls_cipher[SL_TEXT_MAX], tcp_tls_records[SL_TEXT_MAX];
    /* verbs */
    char verbs_devices[SL_TEXT_MAX], verbs_gid_family[SL_TEXT_MAX], verbs_paths[SL_TEXT_MAX];
    char verbs_fallback[SL_TEXT_MAX];
    int64_t verbs_gid_index, verbs_traffic_class, verbs_service_level, verbs_mtu;
    int64_t verbs_timeout, verbs_retry_count, verbs_rnr_timer, verbs_paths_per_rail;
    int64_t verbs_eager_bytes, verbs_piece_bytes, verbs_staging_bytes, verbs_path_wait_ms;
    int64_t verbs_relaxed_ordering, verbs_reserve, verbs_fork, verbs_srq;
    /* nccl */
    char nccl_profile[SL_TEXT_MAX], nccl_tuner[SL_TEXT_MAX], nccl_env_file[SL_TEXT_MAX];
    int64_t nccl_profile_events, nccl_gpu;
};

enum sl_config_type { SL_CONFIG_TEXT, SL_CONFIG_INT, SL_CONFIG_BYTES, SL_CONFIG_SWITCH };

struct sl_config_row {
    const char *name; /* without SLUICE_ */
    size_t offset;    /* of the field */
    enum sl_config_type type;
    const char *value; /* the default, as one would write it */
    const char *unit;  /* "" when it has none */
    int64_t min, max;  /* of numbers */
    const char *help;  /* a sentence or two */
    /* words between spaces, the only values there are; NULL: any that the type has */
    const char *choices;
    int64_t least; /* of numbers, but for 0 and what is below */
    /* Of texts that are written by rules, whoever reads them later: -EINVAL names the variable and
     * what is wrong; pure. NULL: any text will do. */
    int (*check)(const char *value);
};

extern const struct sl_config_row sl_config_rows[];
extern const size_t sl_config_row_count;

/* Sets every field to its default. */
void sl_config_defaults(struct sl_config *config);

/* Sets one variable from text. name is without SLUICE_. Words are kept as the table writes them,
 * however they are written in value (TCP for tcp, 0 for off). -EINVAL names variable, value and
 * what would do; -ENOENT: no such variable, the text names the nearest. */
int sl_config_set(struct sl_config *config, const char *name, const char *value);

/* Defaults, then every SLUICE_* of envp (as environ). An unknown one gets a warning with the
 * nearest name; a bad value is -EINVAL. */
int sl_config_from_env(struct sl_config *config, char *const *envp);

/* Bytes from "64", "64k", "1.5M", "2g" (powers of 1024). -EINVAL, for a negative size, too. */
int sl_parse_bytes(const char *text, int64_t *out);

#endif
