/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the state pages of a process and prints them. */
#include "status.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/state_file.h"
#include "core/state_text.h"

#include <string.h>

struct printing {
    FILE *out;
    bool json;
    int pages;
    int err; /* of those that could not be read */
    char why[256];
};

static bool print_line(void *arg, const char *text, size_t len)
{
    return fwrite(text, 1, len, arg) == len;
}

static void print_page(void *arg, int fd, bool lives)
{
    struct printing *p = arg;
    struct sl_state_reader reader;
    int err = sl_state_read_fd(fd, &reader);

    if (err != 0) {
        p->err = err;
        snprintf(p->why, sizeof(p->why), "%s", sluice_last_error());
        return;
    }
    if (p->json && p->pages > 0)
        fputs(",\n", p->out);
    p->pages++;
    if (p->json)
        sb_status_json(&reader, lives, p->out);
    else
        sl_state_text_all(&reader, lives, sl_now(&sl_clock_monotonic), print_line, p->out);
}

static int print_all(int pid, struct printing *p)
{
    int found = sl_state_file_find(pid, print_page, p);

    if (found < 0)
        return found;
    if (p->pages == 0 && p->err != 0)
        return sl_fail(p->err, "the state page of process %d cannot be read: %s", pid, p->why);
    if (p->pages == 0)
        return sl_fail(-ENOENT,
                       "process %d has no state page: it has made no communicator of Sluice, or "
                       "SLUICE_STATE is off",
                       pid);
    return 0;
}

static int write_json(int pid, const char *path, FILE *standard)
{
    bool to_stdout = strcmp(path, "-") == 0;
    struct printing p = {.json = true, .out = to_stdout ? standard : fopen(path, "we")};
    int err;

    if (p.out == NULL)
        return sl_fail(-errno, "cannot write %s: %s", path, strerror(errno));
    fputs("{\"tool\":\"sluice-bench\",\"pages\":[\n", p.out);
    err = print_all(pid, &p);
    fputs("\n]}\n", p.out);
    if (to_stdout || fclose(p.out) == 0)
        return err;
    return sl_fail(-errno, "cannot write %s: %s", path, strerror(errno));
}

int sb_status(int pid, const char *json, FILE *out)
{
    struct printing p = {.out = out};
    int err = json != NULL ? write_json(pid, json, out) : print_all(pid, &p);

    sl_state_file_clean(sl_wall_s());
    return err;
}
