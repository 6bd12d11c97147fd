/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's configuration: one file, of sections and keys, each of which is a row of a table.
 *
 *     [store]
 *     path = /var/lib/sluiced/state.db
 *     transitions = 100000
 *
 * What is not known, or out of its range, is refused with the line that says it. Nothing is read
 * as anything else, and half a file counts for nothing.
 */
#ifndef SL_MONITOR_CONFIG_H
#define SL_MONITOR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#define SL_MON_PATH 256
#define SL_MON_WORD 32

/* of a source; auto: where it can be had, and its absence is no alarm */
enum sl_mon_wanted { SL_MON_OFF, SL_MON_AUTO, SL_MON_ON };

struct sl_mon_config {
    char store_path[SL_MON_PATH];
    int64_t store_transitions, store_bytes;
    char events_path[SL_MON_PATH];   /* "": none; "-": standard output */
    char textfile_path[SL_MON_PATH]; /* of metrics; "": none */
    char bundle_path[SL_MON_PATH];   /* of the record of inputs and outputs; "": none */
    int64_t bundle_bytes;

    int isolate_plug, isolate_mode;    /* places in the words of their rows */
    char isolate_classes[SL_MON_PATH]; /* of verdicts, between commas, beside what is fatal */
    char isolate_command[SL_MON_PATH];
    int64_t isolate_hold_s, isolate_share_percent, isolate_least_nodes, isolate_times;
    int64_t isolate_window_s, isolate_timeout_ms;
    char isolate_node[SL_MON_PATH / 4]; /* "": the host's name */
    char isolate_slurm_bin[SL_MON_PATH];
    char isolate_api[SL_MON_PATH], isolate_token[SL_MON_PATH], isolate_ca[SL_MON_PATH];
    int steer_mode; /* a place in the words of its row */
    char steer_checks[SL_MON_PATH], steer_table[SL_MON_PATH];
    int64_t steer_ports, steer_rest_s, steer_trial_s, steer_trial_weight;
    enum sl_mon_wanted probe_echo, probe_http, probe_rdma;
    char probe_listen[64], probe_secret[SL_MON_PATH], probe_library[SL_MON_PATH];
    int64_t probe_rate;
    char rdma_root[SL_MON_PATH], kmsg_path[SL_MON_PATH];
    enum sl_mon_wanted node_names; /* of metrics, besides */
    enum sl_mon_wanted link, rdma, kmsg;
    enum sl_mon_wanted tcp, queues, pcie, rdma_resources, rdma_events, gpu;
    char net_root[SL_MON_PATH], pci_root[SL_MON_PATH], nvml_library[SL_MON_PATH];
    enum sl_mon_wanted bpf_tcp, bpf_queue, bpf_sched, bpf_rdma;
    char link_ignore[SL_MON_PATH]; /* interfaces whose names begin so, between commas */
    int64_t period_ms, subjects;
    enum sl_mon_wanted ranks, sluice;
    /* Processes that are watched beside ranks, between commas: how the paths of their cgroups
     * begin, what is in their command lines. */
    char ranks_cgroup[SL_MON_PATH], ranks_command[SL_MON_PATH];
    char ranks_proc[SL_MON_PATH], ranks_shm[SL_MON_PATH], ranks_cgroups[SL_MON_PATH];
    char api_socket[SL_MON_PATH]; /* "": none */
    int64_t api_mode;             /* its permissions */
    char api_group[64];           /* its group; "": the agent's own */
    char api_http[64];            /* "127.0.0.1:9494"; "": none */

    /* Where observations are published, and read by a cluster's instance (docs/cluster.md). */
    char mqtt_broker[SL_MON_PATH]; /* "HOST:PORT"; "": none */
    char mqtt_prefix[64], mqtt_node[64];
    char mqtt_user[64], mqtt_password_file[SL_MON_PATH];
    char mqtt_ca[SL_MON_PATH], mqtt_cert[SL_MON_PATH], mqtt_key[SL_MON_PATH];
    int64_t mqtt_period_ms, mqtt_refresh_s, mqtt_keepalive_s;
    /* Of sluiced --cluster. */
    char cluster_http[64], cluster_members[SL_MON_PATH], cluster_command[SL_MON_PATH];
    char cluster_instance[64]; /* "": the host's name and the process' number */
    int64_t cluster_port, cluster_period_ms, cluster_timeout_ms, cluster_members_s;
    int64_t cluster_silent_s, cluster_stall_s, cluster_confirm_s, cluster_nodes, cluster_bytes;
    char cluster_history[SL_MON_PATH], cluster_cases[SL_MON_PATH]; /* "": none */
    int64_t cluster_false_isolations, cluster_cases_count, cluster_cases_bytes;
};

struct sl_mon_config_row {
    const char *section, *key, *standard, *unit, *help;
    const char *words; /* of a choice, between blanks */
    enum {
        SL_MON_CONFIG_TEXT,
        SL_MON_CONFIG_NUMBER,
        SL_MON_CONFIG_WANTED,
        SL_MON_CONFIG_MODE,    /* permissions, octal, in an int64_t */
        SL_MON_CONFIG_ADDRESS, /* a text: nothing, or what sl_mon_address() takes */
        SL_MON_CONFIG_CHOICE
    } type;
    size_t offset, cap;
    int64_t least, most;
};

extern const struct sl_mon_config_row sl_mon_config_rows[];
extern const unsigned sl_mon_config_row_count;

void sl_mon_config_defaults(struct sl_mon_config *out);
/* name: for sentences. -EINVAL with "NAME:LINE: ...": out is as it was. */
int sl_mon_config_read(FILE *file, const char *name, struct sl_mon_config *out);
/* -ENOENT, -EACCES; or as above. */
int sl_mon_config_load(const char *path, struct sl_mon_config *out);
/* The name of a network interface begins as link_ignore says. */
bool sl_mon_config_ignores(const struct sl_mon_config *config, const char *netif);
/* "127.0.0.1:9494", "[::1]:9494": numbers alone, as names would ask a server. False: it is none. */
bool sl_mon_address(const char *text, struct sockaddr_storage *out, socklen_t *len);
/* The word of a choice that is in force; out is long enough for any. */
void sl_mon_config_word(const struct sl_mon_config_row *row, const struct sl_mon_config *config,
                        char out[SL_MON_WORD]);
/* All rows, with their defaults, as a file that changes nothing. */
void sl_mon_config_print(FILE *out);

#endif
