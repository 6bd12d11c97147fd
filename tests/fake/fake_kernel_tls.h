/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel's TLS, for machines whose kernel has none: setsockopt(), sendmsg(), recvmsg() and poll()
 * of the program that links it (-Wl,--wrap) make and open records on sockets that were given keys.
 * On others they are the kernel's own.
 */
#ifndef SL_FAKE_KERNEL_TLS_H
#define SL_FAKE_KERNEL_TLS_H

#include <stdbool.h>

/* FAKE_OFF: all is left to the kernel that there is. */
enum fake_kernel_tls { FAKE_OFF, FAKE_NO_TLS, FAKE_NO_CHACHA, FAKE_KEYS_STAY, FAKE_NEW_KEYS };

struct fake_kernel {
    enum fake_kernel_tls tls;
    bool nic;      /* a NIC seals what goes over any socket but the first that was given keys */
    unsigned busy; /* so many polls find no room to write */
    unsigned keys; /* that were taken, all in all */
};

extern struct fake_kernel fake_kernel;

/* Forgets every socket. */
void fake_kernel_reset(enum fake_kernel_tls tls);

#endif
