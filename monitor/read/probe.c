/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents' probes of each other found (sluicectl -o json probe; docs/monitor-api.md): an object
 * a line, {"type": "probe", "from", "to", "rail", "bytes", "sent", "answered", "lost_there",
 * "lost_back", "rtt_ns": {"mean"}}, and "transport", "udp" or "rdma", alike in all lines: times of
 * the two are no measure of each other.
 *
 * Hosts are ranks here, numbered as they come unless a rank of the job is on that host already;
 * both ways of a probe are edges, each with half of the round trip as its time on the wire.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/lines.h"

#include <json-c/json.h>
#include <string.h>

#define DEPTH_MAX 8
#define PACKETS_MAX 1000000u
#define BYTES_MAX 1000000u

struct file {
    struct sl_lines lines;
    struct json_tokener *tokener;
    struct sl_job *job;
    const char *transport; /* of the lines before; NULL: none yet */
};

static int number_at(struct file *file, struct json_object *in, const char *key, uint64_t most,
                     uint64_t *out)
{
    struct json_object *value = json_object_object_get(in, key);

    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0 ||
        json_object_get_uint64(value) > most)
        return sl_lines_bad(&file->lines, "\"%s\" is missing, or no number from 0 to %llu", key,
                            (unsigned long long)most);
    *out = json_object_get_uint64(value);
    return 0;
}

static int text_at(struct file *file, struct json_object *in, const char *key, uint32_t *out)
{
    struct json_object *value = json_object_object_get(in, key);

    if (!json_object_is_type(value, json_type_string))
        return sl_lines_bad(&file->lines, "\"%s\" is missing, or no text", key);
    *out = sl_job_text(file->job, json_object_get_string(value),
                       (size_t)json_object_get_string_len(value));
    return *out != SL_JOB_NONE ? 0 : sl_lines_bad(&file->lines, "\"%s\" is too long", key);
}

/* The first rank of that host; a new one where there is none. */
static int rank_of(struct file *file, uint32_t host, uint32_t *rank)
{
    struct sl_job *job = file->job;
    int err;

    for (uint32_t r = 0; r < job->rank_count; r++)
        if (job->ranks[r].host == host) {
            *rank = r;
            return 0;
        }
    *rank = job->rank_count;
    err = sl_job_add_rank(job, *rank);
    if (err == 0)
        job->ranks[*rank].host = host;
    return err;
}

static int add_edges(struct file *file, uint32_t from, uint32_t to, uint32_t rail,
                     const uint64_t *there, uint64_t bytes, uint64_t rtt_ns)
{
    struct sl_job_edge edge = {.comm = SL_JOB_NONE, .path = rail, .messages = there[0]};
    int err = rank_of(file, from, &edge.src);

    if (err == 0)
        err = rank_of(file, to, &edge.dst);
    if (err != 0)
        return err;
    edge.bytes = there[0] * bytes;
    edge.lost = there[1];
    edge.wait_s[SL_JOB_WAIT_WIRE] = (double)rtt_ns / 2e9 * (double)there[0];
    err = sl_job_add_edge(file->job, &edge);
    if (err != 0)
        return err;
    rank_of(file, from, &edge.dst);
    rank_of(file, to, &edge.src);
    edge.lost = there[2];
    return sl_job_add_edge(file->job, &edge);
}

/* Lines of older agents do not say it, and are of UDP. */
static int take_transport(struct file *file, struct json_object *line)
{
    struct json_object *value = json_object_object_get(line, "transport");
    const char *text = value != NULL ? json_object_get_string(value) : "udp";
    const char *transport = text != NULL && strcmp(text, "udp") == 0    ? "udp"
                            : text != NULL && strcmp(text, "rdma") == 0 ? "rdma"
                                                                        : NULL;

    if (transport == NULL)
        return sl_lines_bad(&file->lines, "\"transport\" is neither \"udp\" nor \"rdma\"");
    if (file->transport != NULL && strcmp(file->transport, transport) != 0)
        return sl_lines_bad(&file->lines, "probes over RDMA and over UDP are in one file: times of "
                                          "the two cannot be compared, so put them apart");
    file->transport = transport;
    return 0;
}

/* counts: answered, lost there, lost back. */
static int read_object(struct file *file, struct json_object *line)
{
    struct json_object *type = json_object_object_get(line, "type"), *rtt;
    const char *name =
        json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
    uint64_t sent = 0, counts[3] = {0}, bytes = 0, mean = 0;
    uint32_t from = 0, to = 0, rail = 0;
    int err;

    if (strcmp(name, "probe") != 0)
        return sl_lines_bad(&file->lines, "it is no \"probe\"");
    err = take_transport(file, line);
    err = err ?: text_at(file, line, "from", &from);
    err = err ?: text_at(file, line, "to", &to);
    err = err ?: text_at(file, line, "rail", &rail);
    err = err ?: number_at(file, line, "sent", PACKETS_MAX, &sent);
    err = err ?: number_at(file, line, "answered", sent, &counts[0]);
    err = err ?: number_at(file, line, "lost_there", sent - counts[0], &counts[1]);
    err = err ?: number_at(file, line, "lost_back", sent - counts[0] - counts[1], &counts[2]);
    err = err ?: number_at(file, line, "bytes", BYTES_MAX, &bytes);
    if (err != 0 || counts[0] == 0 || from == to)
        return err; /* nobody answered, or a host asked itself: it says nothing of a way */
    if (from == 0 || to == 0)
        return sl_lines_bad(&file->lines, "a host has no name");
    rtt = json_object_object_get(line, "rtt_ns");
    if (!json_object_is_type(rtt, json_type_object))
        return sl_lines_bad(&file->lines, "\"rtt_ns\" is missing");
    err = number_at(file, rtt, "mean", INT64_MAX / 1024, &mean);
    return err ?: add_edges(file, from, to, rail, counts, bytes, mean);
}

static int read_line(struct file *file)
{
    struct json_object *line;
    int err;

    json_tokener_reset(file->tokener);
    line = json_tokener_parse_ex(file->tokener, file->lines.text, (int)file->lines.len);
    if (line == NULL || !json_object_is_type(line, json_type_object) ||
        json_tokener_get_parse_end(file->tokener) != file->lines.len) {
        json_object_put(line);
        return sl_lines_bad(&file->lines, "it is no object of JSON");
    }
    err = read_object(file, line);
    json_object_put(line);
    return err;
}

static int read_probe(struct sl_job *job, struct sl_read_in *in)
{
    struct file file = {.job = job, .tokener = json_tokener_new_ex(DEPTH_MAX)};
    int err = sl_lines_open(&file.lines, in);

    if (err == 0 && file.tokener == NULL)
        err = sl_fail(-ENOMEM, "no memory to read %s", in->name);
    if (err == 0)
        json_tokener_set_flags(file.tokener, JSON_TOKENER_STRICT);
    while (err == 0) {
        err = sl_lines_next(&file.lines);
        if (err <= 0)
            break;
        err = file.lines.len > 0 ? read_line(&file) : 0;
    }
    if (file.tokener != NULL)
        json_tokener_free(file.tokener);
    sl_lines_close(&file.lines);
    return err;
}

static bool is_probe(const char *head, size_t len)
{
    static const char *const keys[] = {"\"type\":\"probe\"", "\"answered\":", "\"rtt_ns\":"};
    const char *end = memchr(head, '\n', len);

    len = end != NULL ? (size_t)(end - head) : len;
    if (len == 0 || head[0] != '{')
        return false;
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!sl_read_has(head, len, keys[i]))
            return false;
    return true;
}

const struct sl_read_format sl_read_probe = {
    .name = "probes of node agents", .is = is_probe, .read = read_probe};
