/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path table of a host: a planner says in it, while jobs run, by which paths they should send.
 * docs/paths.md is the format. The text is another's: it is checked whole before any of it counts.
 */
#ifndef SL_CORE_PATH_TABLE_H
#define SL_CORE_PATH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PATH_TABLE_BYTES_MAX (1u << 20)
#define SL_PATH_TABLE_RULES_MAX 16384u
#define SL_PATH_TABLE_JOB_MAX 255u /* bytes of a job's name */
#define SL_PATH_TABLE_PORT_MAX 79u /* and of a port's, "mlx5_0:1" */
#define SL_PATH_TABLE_NUMBER_MAX (1 << 20)
#define SL_PATH_TABLE_LABEL_MAX 0xfffff
#define SL_PATH_TABLE_WEIGHT_MAX 100
#define SL_PATH_TABLE_ALL (-1)    /* of rank, peer and path */
#define SL_PATH_TABLE_UNSAID (-1) /* of label, weight and avoid */

/* A line: which paths, and what it says of them. */
struct sl_path_rule {
    const char *job; /* borrowed; of job_len bytes, 0: every job */
    size_t job_len;
    const char *port; /* of this end; borrowed; of port_len bytes, 0: every port */
    size_t port_len;
    int32_t rank, peer, path;
    int32_t label;
    int16_t weight;
    int16_t avoid; /* 1; 0: use */
};

struct sl_path_table {
    struct sl_path_rule *rules; /* owned; their jobs and ports lie in the text that was read */
    size_t count;
    uint64_t until_s; /* since 1970: it counts up to then; 0: for ever */
};

/* What the rules say of a path in the end. */
struct sl_path_setting {
    int32_t label; /* SL_PATH_TABLE_UNSAID */
    uint8_t weight;
    bool avoid;
};

/* A rule for every path that says nothing. */
struct sl_path_rule sl_path_rule_empty(void);
/* Reads text[0..len), which need not end with a zero. -EBADMSG, with the line: it is no table;
 * -ENOMEM. */
int sl_path_table_parse(const char *text, size_t len, struct sl_path_table *out);
void sl_path_table_fini(struct sl_path_table *table);
/* Reads one rule as a line has it, without its newline. -EINVAL. */
int sl_path_rule_parse(const char *text, size_t len, struct sl_path_rule *out);
/* Can a table hold that rule? -EINVAL, with what is wrong. */
int sl_path_rule_check(const struct sl_path_rule *rule);
/* The text of a table, from malloc(). -EINVAL: a rule cannot be held; -E2BIG: too many;
 * -ENOMEM. */
int sl_path_table_print(const struct sl_path_table *table, char **out, size_t *len);
/* Is it for that rank of that job? rank -1: it has none, so only a rule for all is. */
bool sl_path_rule_is_for(const struct sl_path_rule *rule, const char *job, int rank);
/* What the rules, which are for this rank, say of a path: of two that say something the later.
 * port: that it goes by at this end; NULL: none yet, and rules of a port are not for it. */
struct sl_path_setting sl_path_rules_apply(const struct sl_path_rule *rules, size_t count, int peer,
                                           int path, const char *port);

#endif
