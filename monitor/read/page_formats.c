/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of Sluice's own: state pages, in place or copied; what sluice-bench --status --json - says;
 * a node agent's answer to /v1/ranks.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/state_read.h"
#include "monitor/read/formats.h"
#include "monitor/read/json.h"
#include "monitor/read/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#define PLACE "/dev/shm/sluice."
#define COPY_MAX ((size_t)1 << 30) /* bytes of a compressed page */

static int bad(const struct sl_read_in *in, int err)
{
    if (err == -EPROTO)
        return sl_fail(-EBADMSG, "%s: %s", in->name, sluice_last_error());
    return err == -EBADMSG ? sl_fail(-EBADMSG, "%s: %s", in->name, sluice_last_error()) : err;
}

static int take(struct sl_job *job, const struct sl_read_in *in, struct sl_page *page)
{
    int err = sl_page_take(job, page, NULL);

    sl_page_free(page);
    return bad(in, err);
}

/* ---- pages ---- */

int64_t sl_page_wall_ns(void)
{
    struct timespec wall, mono;

    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &mono);
    return (int64_t)(wall.tv_sec - mono.tv_sec) * 1000000000 + wall.tv_nsec - mono.tv_nsec;
}

/* Where its process put it: this host's clock is its own, and who holds no lock has ended. */
void sl_page_in_place(struct sl_page *page, int fd)
{
    page->now_ns = (int64_t)sl_now(&sl_clock_monotonic);
    page->wall_ns = sl_page_wall_ns();
    page->life = SL_PAGE_LIVES;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        page->life = SL_PAGE_DEAD;
        flock(fd, LOCK_UN);
    }
}

char sl_page_process_state(int pid, uint64_t start_ticks)
{
    char path[64], line[1024], *at;
    unsigned long long start = 0;
    char state;
    FILE *in;
    size_t len;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    in = fopen(path, "re");
    if (in == NULL)
        return '?';
    len = fread(line, 1, sizeof(line) - 1, in);
    fclose(in);
    line[len] = '\0';
    at = strrchr(line, ')');
    if (at == NULL || at[1] != ' ')
        return '?';
    state = at[2];
    for (unsigned field = 2; field < 22 && at != NULL; field++)
        at = strchr(at + 1, ' ');
    if (at == NULL || sscanf(at, " %llu", &start) != 1 || start != start_ticks)
        return '?';
    /* One that nobody has waited for has ended: a container's first process may never do. */
    return state == 'Z' || state == 'X' ? '?' : state;
}

int sl_page_read_all(struct sl_read_in *in, size_t most, void **out, size_t *len)
{
    size_t cap = SL_READ_HEAD;
    char *bytes = malloc(cap);
    long got = 1;

    for (*len = 0; bytes != NULL && got > 0; *len += got > 0 ? (size_t)got : 0) {
        if (*len == cap) {
            char *more = cap < most ? realloc(bytes, cap *= 2) : NULL;

            if (more == NULL)
                free(bytes);
            bytes = more;
        }
        if (bytes != NULL)
            got = in->more(in, bytes + *len, cap - *len);
    }
    if (got < 0)
        free(bytes);
    *out = got < 0 ? NULL : bytes;
    if (got < 0)
        return (int)got;
    return bytes != NULL ? 0 : sl_fail(-ENOMEM, "no memory to read %s", in->name);
}

static int read_copy(struct sl_read_in *in, struct sl_page *out)
{
    void *bytes;
    size_t len;
    int err = sl_page_read_all(in, COPY_MAX, &bytes, &len);

    if (err != 0)
        return err;
    err = sl_page_read_memory(bytes, len, out);
    free(bytes);
    return err;
}

static int read_page(struct sl_job *job, struct sl_read_in *in)
{
    bool is_in_place = in->fd != NULL && strncmp(in->name, PLACE, strlen(PLACE)) == 0;
    struct sl_page page;
    int err = in->fd != NULL ? sl_page_read_fd(*in->fd, &page) : read_copy(in, &page);

    if (err != 0)
        return bad(in, err);
    if (is_in_place)
        sl_page_in_place(&page, *in->fd);
    return take(job, in, &page);
}

static bool is_page(const char *head, size_t len)
{
    return len >= strlen(SL_STATE_MAGIC) &&
           memcmp(head, SL_STATE_MAGIC, strlen(SL_STATE_MAGIC)) == 0;
}

const struct sl_read_format sl_read_page = {
    .name = "Sluice's state page", .is = is_page, .read = read_page};

/* ---- JSON ---- */

static int read_status_page(struct sl_job *job, const struct sl_read_in *in, struct sl_json *json)
{
    struct json_object *object;
    struct sl_page page;
    int err = sl_json_value(json, &object);

    if (err != 0)
        return err;
    err = sl_page_of_status(object, &page);
    json_object_put(object);
    return err != 0 ? bad(in, err) : take(job, in, &page);
}

static int walk_status(struct sl_job *job, struct sl_read_in *in, struct sl_json *json)
{
    char key[32];
    int got = sl_json_open(json, '{');

    while (got == 0 && (got = sl_json_next(json, key, sizeof(key))) == 1) {
        struct json_object *value;

        if (strcmp(key, "pages") == 0) {
            got = sl_json_open(json, '[');
            while (got == 0 && (got = sl_json_next(json, NULL, 0)) == 1)
                got = read_status_page(job, in, json);
            continue;
        }
        got = sl_json_value(json, &value);
        if (got == 0)
            json_object_put(value);
    }
    return got == 0 ? sl_json_end(json) : got;
}

static int read_status(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_json *json = sl_json_new(in);
    int err = json == NULL ? sl_fail(-ENOMEM, "no memory to read %s", in->name)
                           : walk_status(job, in, json);

    sl_json_free(json);
    return err;
}

static bool is_status(const char *head, size_t len)
{
    return sl_read_has(head, len, "\"tool\":\"sluice-bench\"") &&
           sl_read_has(head, len, "\"pages\"");
}

const struct sl_read_format sl_read_status = {
    .name = "sluice-bench --status (JSON)", .is = is_status, .read = read_status};

int64_t sl_page_time_of(const char *text)
{
    struct tm tm = {.tm_isdst = 0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    double part = 0;

    if (end == NULL || tm.tm_year < 70 || tm.tm_year > 300)
        return SL_JOB_NEVER;
    if (*end == '.')
        part = strtod(end, NULL);
    return (int64_t)timegm(&tm) * 1000000000 + (part > 0 && part < 1 ? (int64_t)(part * 1e9) : 0);
}

int sl_page_each_of_agent(struct json_object *answer, int (*found)(void *arg, struct sl_page *page),
                          void *arg)
{
    struct json_object *ranks = sl_json_get(answer, "ranks"), *host = sl_json_get(answer, "host"),
                       *time = sl_json_get(answer, "time");
    size_t count =
        json_object_is_type(ranks, json_type_array) ? json_object_array_length(ranks) : 0;
    int64_t now = json_object_is_type(time, json_type_string)
                      ? sl_page_time_of(json_object_get_string(time))
                      : SL_JOB_NEVER;
    int err = 0;

    if (now == SL_JOB_NEVER)
        return sl_fail(-EBADMSG, "the answer does not say what time it is");
    for (size_t i = 0; i < count && err == 0; i++) {
        struct json_object *rank = json_object_array_get_idx(ranks, i);
        struct sl_page page;

        if (!json_object_is_type(rank, json_type_object) ||
            sl_json_get(rank, "communicators") == NULL)
            continue;
        err = sl_page_of_agent(
            rank, json_object_is_type(host, json_type_string) ? json_object_get_string(host) : "?",
            now, &page);
        if (err == 0)
            err = found(arg, &page);
    }
    return err;
}

static int take_agent_page(void *arg, struct sl_page *page)
{
    int err = sl_page_take(arg, page, NULL);

    sl_page_free(page);
    return err;
}

static int read_agent(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_json *json = sl_json_new(in);
    struct json_object *answer = NULL;
    int err = json == NULL ? sl_fail(-ENOMEM, "no memory to read %s", in->name)
                           : sl_json_value(json, &answer);

    if (err == 0)
        err = sl_json_end(json);
    if (err == 0)
        err = bad(in, sl_page_each_of_agent(answer, take_agent_page, job));
    json_object_put(answer);
    sl_json_free(json);
    return err;
}

/* Other answers of an agent have no processes, or not at their beginning. */
static bool is_agent(const char *head, size_t len)
{
    size_t first = len < 512 ? len : 512;

    return len > 0 && head[0] == '{' && sl_read_has(head, first, "\"version\"") &&
           sl_read_has(head, first, "\"processes\"") && sl_read_has(head, first, "\"time\"");
}

const struct sl_read_format sl_read_agent_ranks = {
    .name = "a node agent's /v1/ranks", .is = is_agent, .read = read_agent};
