/* SPDX-License-Identifier: Apache-2.0 */
/* The report that a process prints of itself on SIGUSR1: its own state page, read as anybody
 * does. */
#include "collectives/status.h"

#include "core/state_page.h"
#include "core/state_text.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct sigaction previous;

/* As much as goes without waiting: a full pipe must not stop a rank, which others wait for. */
static bool write_now(void *arg, const char *text, size_t len)
{
    (void)arg;
    while (len > 0) {
        struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
        ssize_t n = poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0
                        ? write(STDERR_FILENO, text, len < PIPE_BUF ? len : PIPE_BUF)
                        : -1;

        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* Only poll() and write() are called from here on: core/state_text.h. */
static void on_signal(int signal_number, siginfo_t *info, void *context)
{
    struct sl_state_reader reader;
    int saved = errno;
    size_t bytes;
    const void *page = sl_state_memory(&bytes);

    if (page != NULL && sl_state_read_memory(page, bytes, &reader) == 0)
        sl_state_text_comms(&reader, write_now, NULL);
    if ((previous.sa_flags & SA_SIGINFO) != 0)
        previous.sa_sigaction(signal_number, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(signal_number);
    errno = saved;
}

int sl_status_install_signal(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGUSR1, &action, &previous) != 0)
        return sl_fail(-errno, "the status signal could not be set up: %s", strerror(errno));
    return 0;
}
