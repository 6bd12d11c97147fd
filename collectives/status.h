/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live report: each communicator keeps a page of text about what it waits for, in memory that
 * the signal handler prints (SIGUSR1) and that another process reads through /proc (sluice-bench
 * --status PID), also when this process is stopped or never calls the library again.
 */
#ifndef SL_COLLECTIVES_STATUS_H
#define SL_COLLECTIVES_STATUS_H

#include "collectives/comm.h"

#include <stdio.h>

/* Gives comm a page. Without one (no memory, no descriptor) there is no live report, nothing
 * else. */
void sl_status_open(struct sluice_comm *comm);
void sl_status_close(struct sluice_comm *comm);

/* Writes the page anew. */
void sl_status_refresh(struct sluice_comm *comm);

/* Prints all pages to stderr when SIGUSR1 arrives. The handler that was there is called after. */
int sl_status_install_signal(void);

/* Prints the pages of another process. -ESRCH: no such process; -ENOENT: it has no communicator;
 * -EACCES. */
int sl_status_print_process(int pid, FILE *out);

/* Prints one page, with control characters made harmless. False: the file holds no whole page. */
bool sl_status_print_page(const char *path, FILE *out);

#endif
