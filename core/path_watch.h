/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a path table: read when it has changed, and replaced by who writes it. A writer puts
 * a whole file beside it and renames that, so a reader meets the old table or the new one.
 */
#ifndef SL_CORE_PATH_WATCH_H
#define SL_CORE_PATH_WATCH_H

#include "core/path_table.h"

#include <sys/stat.h>

#define SL_PATH_FILE_MAX 256

/* Whether a file is the one that was read last. */
struct sl_path_file_mark {
    bool there;
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec changed, modified;
};

/* One file that is watched, and what it said last. */
struct sl_path_source {
    char file[SL_PATH_FILE_MAX]; /* "": none */
    struct sl_path_file_mark mark;
    uint64_t until_s;
    char *text;                 /* owned; ports of rules lie in it */
    struct sl_path_rule *rules; /* for this rank; owned; their jobs are not kept */
    size_t count;
};

/* The node agent's file comes first, so that people and planners have the last word. */
enum { SL_PATH_OF_AGENT, SL_PATH_OF_PEOPLE, SL_PATH_SOURCES };

/* A reader of one rank. Zeroed and without a file it reads nothing. */
struct sl_path_watch {
    struct sl_path_source sources[SL_PATH_SOURCES];
    const char *job; /* borrowed */
    uint64_t next_ns;
    struct sl_path_rule *rules; /* of all sources, one after the other; owned */
    size_t count;
};

/* table, agent: "off", "auto" or a file's name. job is borrowed for the life of the watch. */
void sl_path_watch_init(struct sl_path_watch *watch, const char *table, const char *agent,
                        const char *job);
void sl_path_watch_fini(struct sl_path_watch *watch);
/*
 * Looks at the files, at most every 20 ms, and reads one when it is another one. rank as in
 * sl_path_rule_is_for(). True: the rules have changed. A file of another user than this one or
 * root, one that others may write to, or that is no table, changes nothing, and a log line says
 * so, once. Where there is none, or its time is over, there are no rules.
 */
bool sl_path_watch_poll(struct sl_path_watch *watch, int rank, uint64_t now_ns);

/* The file that a setting means, of this user; "": none. */
void sl_path_file_name(const char *setting, char *out, size_t cap);
/* The same of the node agent's, which is for all users. */
void sl_path_agent_file_name(const char *setting, char *out, size_t cap);
/* Reads a whole file under the rules above into *text, from malloc(). *len 0, *text NULL and 0:
 * there is none. -EPERM, -EFBIG and other codes, with a sentence. */
int sl_path_file_read(const char *file, char **text, size_t *len);
/* Puts a table in its place, whole. -EINVAL, -E2BIG, -ENOMEM, and codes of the system's calls. */
int sl_path_file_write(const char *file, const struct sl_path_table *table);
/* Keeps other writers that ask out, until sl_path_file_unlock(). Returns a descriptor, or a
 * negative errno with a sentence. */
int sl_path_file_lock(const char *file);
void sl_path_file_unlock(int fd);

#endif
