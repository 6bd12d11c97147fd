/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of TCP: SLUICE_TCP_*. */
#include "tcp/config.h"

#include "core/err.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT(field) offsetof(struct sl_tcp_config, field)

/* Of TCP_CONGESTION the kernel knows the choices. Where TCP is not used, it is asked nevertheless:
 * a name that is not taken now would be found out in the middle of a job that moves to other
 * hosts. */
static int check_congestion(const struct sl_config *config)
{
    const char *name = sl_tcp_config(config)->congestion;
    char list[256] = "";
    int err = 0, fd;

    if (strcmp(name, "auto") == 0 || strcmp(name, "system") == 0)
        return 0;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0; /* the first that needs sockets will say so */
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) != 0)
        err = -errno;
    close(fd);
    if (err == 0)
        return 0;
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");

    if (file != NULL && fgets(list, sizeof(list), file) != NULL)
        list[strcspn(list, "\n")] = '\0';
    if (file != NULL)
        fclose(file);
    return sl_fail(-EINVAL,
                   "SLUICE_TCP_CONGESTION is '%s', which the kernel does not take (%s); it must be "
                   "auto, system or one of: %s",
                   name, strerror(-err), list);
}

static const struct sl_config_row rows[] = {
    SL_ROW_INT("TCP_CONNECTIONS", connections, "0", "connections", 0, 128,
               "TCP connections to each peer. 0: chosen."),
    SL_ROW_CHOICE("TCP_ENGINE", engine, "auto", "auto uring epoll",
                  "How sockets are moved on: by io_uring or by epoll; auto: the first that works, "
                  "measured best first."),
    SL_ROW_TEXT(
        "TCP_CONGESTION", congestion, "auto",
        "Congestion control of our sockets, a name of net.ipv4.tcp_available_congestion_control; "
        "auto: cubic where there is one; system: the kernel's default."),
    SL_ROW_SWITCH(
        "TCP_CRC", crc, "auto",
        "CRC32C over every frame: auto is on, except on connections that do not leave the host."),
    SL_ROW_CHOICE(
        "TCP_TLS_CIPHER", tls_cipher, "auto", "auto aes128 aes256 chacha20",
        "Cipher of TLS: auto (AES-128-GCM or ChaCha20-Poly1305, as the processors of both ends "
        "like), aes128, aes256 "
        "(AES-256-GCM, with SHA-384), chacha20. Ranks that name different ones refuse each other."),
    SL_ROW_CHOICE(
        "TCP_TLS_RECORDS", tls_records, "user", "user kernel auto",
        "Who makes the records of TLS: user (this process), kernel (refused where the kernel "
        "cannot), auto (the kernel where it can). Each rank for itself."),
    SL_ROW_BYTES("TCP_SOCKET_BYTES", socket_bytes, "0", 0, SL_GIB,
                 "Socket buffer size. 0: the kernel's own tuning."),
    SL_ROW_BYTES("TCP_STRIPE_BYTES", stripe_bytes, "0", 0, SL_GIB,
                 "Messages are dealt over the connections in pieces of this size. 0: chosen."),
};

struct sl_config_section sl_tcp_section = {.area = "TCP",
                                           .rows = rows,
                                           .row_count = SL_ARRAY_LEN(rows),
                                           .size = sizeof(struct sl_tcp_config),
                                           .check = check_congestion};
