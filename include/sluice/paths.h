/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Paths set from outside: what a planner tells the processes of its host, while they run, about the
 * network paths that they send by. sluicectl(1) does the same from a shell.
 */
#ifndef SLUICE_PATHS_H
#define SLUICE_PATHS_H

#include <sluice/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Which paths, and what is wanted of them. Set everything with sluice_path_rule_init() first, then
 * change fields. Of two rules that are for one path, the later counts in what it says.
 */
struct sluice_path_rule {
    const char *job; /**< name of the job; NULL or "": every job */
    int rank;        /**< in that job; -1: every rank of this host */
    int peer;        /**< the rank at the other end; -1: every peer */
    int path;   /**< number of the path, as reports and the state page have it; -1: every path */
    int label;  /**< flow label, 0 to 0xfffff (0: the driver's choice); -1: not said */
    int weight; /**< 1 to 100, against the other paths of the connection; -1: not said */
    int avoid;  /**< 1: only if no other path is up; 0: use it; -1: not said */
    int reserved[4]; /**< 0 */
};

/** Fill *rule with "every path, nothing said". */
SLUICE_API void sluice_path_rule_init(struct sluice_path_rule *rule);

/**
 * Replace the path table of this host by these rules. Processes of this user read it within 20 ms
 * of their next progress; one that computes, within 100 ms.
 *
 * Memory  file and rules are borrowed. file NULL: that of SLUICE_PATHS_TABLE, or else
 *         /dev/shm/sluice-paths.UID.
 * Units   until_s is in seconds since 1970, when the rules cease to count; 0: never.
 * Order   The table is replaced whole: a reader has the old one or the new one.
 * Errors  -EINVAL, a rule that cannot be, or SLUICE_PATHS_TABLE is off; -E2BIG, more than 16384
 *         rules or 1 MiB of text; -ENOMEM; and codes of the system, when the file cannot be made.
 *         The table is then as it was.
 */
SLUICE_API int sluice_paths_write(const char *file, const struct sluice_path_rule *rules,
                                  size_t count, int64_t until_s);

#ifdef __cplusplus
}
#endif
#endif
