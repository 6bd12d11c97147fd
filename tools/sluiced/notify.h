/* SPDX-License-Identifier: Apache-2.0 */
/* What a service tells systemd, by the protocol of sd_notify(3): a line to a socket. */
#ifndef SLD_NOTIFY_H
#define SLD_NOTIFY_H

/* "READY=1", "WATCHDOG=1", "STATUS=...". Does nothing where nobody asks. */
void sld_notify(const char *line);

#endif
