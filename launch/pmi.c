/* SPDX-License-Identifier: Apache-2.0 */
/* Speaks PMI-1: one line asked, one line answered. The launcher is trusted to start us, not to
 * write well: each line is checked before use. */
#include "launch/pmi.h"

#include "core/clock.h"
#include "core/err.h"
#include "launch/io.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEAVE_MS 2000

/* Finds key=value between spaces. */
static const char *find_value(const char *line, const char *key, size_t *len)
{
    size_t key_len = strlen(key);

    for (const char *at = line; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, key, key_len) == 0 && at[key_len] == '=') {
            *len = strcspn(at + key_len + 1, " ");
            return at + key_len + 1;
        }
    }
    return NULL;
}

static int fail_line(const char *line, const char *cmd, const char *what)
{
    char shown[80];

    snprintf(shown, sizeof(shown), "%s", line); /* control characters must not reach a terminal */
    for (char *c = shown; *c != '\0'; c++)
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    return sl_fail(-EPROTO,
                   "the PMI launcher answered '%s' where %s %s; SLUICE_ROOT=host:port does "
                   "without it",
                   shown, cmd, what);
}

int sl_pmi_parse(const char *line, const char *cmd, const char *key, char *out, size_t cap)
{
    size_t len = 0;
    const char *value = find_value(line, "cmd", &len);

    if (value == NULL || len != strlen(cmd) || memcmp(value, cmd, len) != 0)
        return fail_line(line, cmd, "was due");
    value = find_value(line, "rc", &len);
    if (value != NULL && (len != 1 || *value != '0'))
        return fail_line(line, cmd, "should have gone well");
    if (key == NULL)
        return 0;
    value = find_value(line, key, &len);
    if (value == NULL)
        return fail_line(line, key, "is missing");
    if (len >= cap)
        return sl_fail(-EMSGSIZE, "the PMI launcher's %s has %zu bytes, more than %zu", key, len,
                       cap - 1);
    memcpy(out, value, len);
    out[len] = '\0';
    return 0;
}

static int fail_io(int err)
{
    if (err == -ETIMEDOUT)
        return sl_fail(err, "the PMI launcher did not answer in time; did every rank start?");
    return sl_fail(-ECONNRESET, "the PMI launcher is gone: %s", strerror(-err));
}

/* One line without its newline. The launcher answers one line to each question, so nothing that
 * follows it can be lost. */
static int hear(const struct sl_pmi *pmi, char line[SL_PMI_LINE_MAX], uint64_t deadline_ns)
{
    size_t len = 0;

    for (;;) {
        int err = sl_io_await(pmi->fd, POLLIN, deadline_ns);

        if (err != 0)
            return fail_io(err);
        ssize_t n = recv(pmi->fd, line + len, SL_PMI_LINE_MAX - 1 - len, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return sl_fail(-ECONNRESET, "the PMI launcher closed its socket");
        char *newline = memchr(line + len, '\n', (size_t)n);
        len += (size_t)n;
        if (memchr(line, '\0', len) != NULL || (newline != NULL && newline != line + len - 1))
            return sl_fail(-EPROTO, "the PMI launcher sent more than one line of text at once");
        if (newline != NULL) {
            *newline = '\0';
            return 0;
        }
        if (len == SL_PMI_LINE_MAX - 1)
            return sl_fail(-EPROTO, "the PMI launcher sent a line longer than %d bytes",
                           SL_PMI_LINE_MAX);
    }
}

static int question(const struct sl_pmi *pmi, const char *line, const char *cmd, const char *key,
                    char *out, size_t cap, uint64_t deadline_ns)
{
    char answer[SL_PMI_LINE_MAX];
    int err = sl_io_send(pmi->fd, line, strlen(line), 0, deadline_ns);

    if (err != 0)
        return fail_io(err);
    err = hear(pmi, answer, deadline_ns);
    return err ?: sl_pmi_parse(answer, cmd, key, out, cap);
}

int sl_pmi_init(struct sl_pmi *pmi, int fd, uint64_t deadline_ns)
{
    struct sl_pmi made = {.fd = fd};
    char number[16] = "";
    int err = question(&made, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", NULL,
                       NULL, 0, deadline_ns);

    err = err
              ?: question(&made, "cmd=get_maxes\n", "maxes", "vallen_max", number, sizeof(number),
                          deadline_ns);
    err = err
              ?: question(&made, "cmd=get_my_kvsname\n", "my_kvsname", "kvsname", made.kvs,
                          sizeof(made.kvs), deadline_ns);
    if (err != 0)
        return err;
    made.value_max = atoi(number);
    *pmi = made;
    return 0;
}

int sl_pmi_put(struct sl_pmi *pmi, const char *key, const char *value, uint64_t deadline_ns)
{
    char line[SL_PMI_LINE_MAX];

    if ((int)strlen(value) >= pmi->value_max ||
        snprintf(line, sizeof(line), "cmd=put kvsname=%s key=%s value=%s\n", pmi->kvs, key,
                 value) >= (int)sizeof(line))
        return sl_fail(-EMSGSIZE,
                       "the PMI launcher keeps values of at most %d bytes, %zu are needed; "
                       "set SLUICE_ROOT=host:port",
                       pmi->value_max, strlen(value) + 1);
    return question(pmi, line, "put_result", NULL, NULL, 0, deadline_ns);
}

int sl_pmi_barrier(struct sl_pmi *pmi, uint64_t deadline_ns)
{
    return question(pmi, "cmd=barrier_in\n", "barrier_out", NULL, NULL, 0, deadline_ns);
}

int sl_pmi_get(struct sl_pmi *pmi, const char *key, char *out, size_t cap, uint64_t deadline_ns)
{
    char line[SL_PMI_LINE_MAX];

    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=%s\n", pmi->kvs, key);
    return question(pmi, line, "get_result", "value", out, cap, deadline_ns);
}

int sl_pmi_finalize(struct sl_pmi *pmi, uint64_t deadline_ns)
{
    return question(pmi, "cmd=finalize\n", "finalize_ack", NULL, NULL, 0, deadline_ns);
}

/* The one conversation of this process with its launcher. It lasts until exit: a launcher takes a
 * process that leaves early for finished, and one that never takes leave for crashed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_pmi mine = {.fd = -1};
static pid_t owner;
static unsigned shared;

__attribute__((destructor)) static void take_leave(void)
{
    /* An MPI library in the same process talks on the same socket, and takes leave itself. */
    if (mine.fd < 0 || owner != getpid() || dlsym(RTLD_DEFAULT, "MPI_Init") != NULL)
        return;
    sl_pmi_finalize(&mine, sl_now(&sl_clock_monotonic) + LEAVE_MS * SL_NS_PER_MS);
}

int sl_pmi_share(int fd, const char *text, char *out, size_t cap, uint64_t timeout_ms)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + timeout_ms * SL_NS_PER_MS;
    char key[64];
    int err = 0;

    pthread_mutex_lock(&lock);
    if (owner != 0 && owner != getpid()) {
        err = sl_fail(
            -EINVAL,
            "process %d, which forked this one, talks with the launcher (PMI) as this rank: give a "
            "communicator of the child's own a place by SLUICE_ROOT, or a unique id",
            (int)owner);
    } else if (mine.fd < 0) {
        err = sl_pmi_init(&mine, fd, deadline_ns);
        owner = getpid();
    }
    snprintf(key, sizeof(key), "sluice-place-%u", shared++);
    if (err == 0 && text != NULL)
        err = sl_pmi_put(&mine, key, text, deadline_ns);
    err = err ?: sl_pmi_barrier(&mine, deadline_ns);
    err = err ?: sl_pmi_get(&mine, key, out, cap, deadline_ns);
    pthread_mutex_unlock(&lock);
    return err;
}
