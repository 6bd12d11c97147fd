/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets to listen on. */
#ifndef SL_MONITOR_API_SOCKET_H
#define SL_MONITOR_API_SOCKET_H

#include <sys/types.h>

/* At a path, with that mode and of that group ("": as it comes) before anybody can connect; its
 * folder is made. What an agent that is gone left there is replaced; -EADDRINUSE where one listens.
 * The socket, or a negative errno with a sentence. */
int sl_api_listen_path(const char *path, mode_t mode, const char *group);
/* At an address that sl_mon_address() takes. */
int sl_api_listen_address(const char *address);

#endif
