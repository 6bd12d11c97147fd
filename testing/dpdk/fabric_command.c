/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that control the software switch, and its counters as JSON. */
#include "testing/dpdk/fabric.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512
#define CERTAIN (UINT64_C(1) << 32)
#define LATE_NS 100000 /* of reordered frames, where hold_us does not say */

/* One line, read: what may stand in it, whether it did or not. */
struct line {
    const struct verb *verb;
    struct sl_fabric_rule rule;
    bool names_frames; /* the rule's match was given */
    int of;            /* shape, mirror: port=; SL_FABRIC_ANY: of all, or of none */
    uint64_t rate, queue, mark, value;
    bool has_rate, has_queue, has_mark, has_share, has_value, has_high, has_high_share;
    double share, high_share;
    int high;
};

struct verb {
    const char *name;
    bool takes_match, takes_fault, takes_shape, takes_port, takes_value;
    int (*apply)(struct sl_fabric *fabric, struct line *line);
};

/* A number that ends at the end of the word, with a unit or without: K, M, G of `unit` each. */
static bool read_number(const char *text, uint64_t unit, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !(value >= 0))
        return false;
    for (const char *name = "KMG"; unit > 1 && *end && *name; name++) {
        value *= (double)unit;
        if (*end == *name) {
            end++;
            break;
        }
    }
    if (*end || value > (double)most)
        return false;
    *out = (uint64_t)value;
    return true;
}

static bool read_chance(const char *text, uint64_t *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 1))
        return false;
    *out = (uint64_t)(value * (double)CERTAIN);
    return true;
}

static bool read_int(const char *text, uint64_t most, int *out)
{
    uint64_t value;
    if (!read_number(text, 1, most, &value))
        return false;
    *out = (int)value;
    return true;
}

static bool read_us(const char *text, uint64_t *out)
{
    if (!read_number(text, 1, 10000000, out))
        return false;
    *out *= 1000;
    return true;
}

static bool read_sources(const char *text, struct sl_fabric_rule *rule)
{
    char first[8];
    const char *dash = strchr(text, '-');
    size_t len = dash ? (size_t)(dash - text) : strlen(text);
    if (len >= sizeof(first))
        return false;
    memcpy(first, text, len);
    first[len] = 0;
    if (!read_int(first, 65535, &rule->source) ||
        !read_int(dash ? dash + 1 : first, 65535, &rule->source_end))
        return false;
    return rule->source <= rule->source_end;
}

static bool read_match(const char *key, const char *value, struct line *line)
{
    line->names_frames = true;
    if (!strcmp(key, "in"))
        return read_int(value, SL_FABRIC_PORTS - 1, &line->rule.in);
    if (!strcmp(key, "out"))
        return read_int(value, SL_FABRIC_PORTS - 1, &line->rule.out);
    if (!strcmp(key, "port"))
        return read_int(value, SL_FABRIC_PORTS - 1, &line->rule.port);
    if (!strcmp(key, "sport"))
        return read_sources(value, &line->rule);
    return read_int(value, 255, &line->rule.route);
}

static bool is_one_of(const char *key, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(key, *words))
            return true;
    return false;
}

static bool read_fault(const char *key, const char *value, struct line *line)
{
    if (!strcmp(key, "loss"))
        return read_chance(value, &line->rule.loss);
    if (!strcmp(key, "dup"))
        return read_chance(value, &line->rule.twice);
    if (!strcmp(key, "corrupt"))
        return read_chance(value, &line->rule.damage);
    if (!strcmp(key, "reorder"))
        return read_chance(value, &line->rule.late);
    if (!strcmp(key, "hold_us"))
        return read_us(value, &line->rule.late_ns);
    return read_us(value, &line->rule.delay_ns);
}

static bool read_share(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out > 0 && *out <= 1;
}

/* A DSCP, or "none". */
static bool read_high(const char *text, int *out)
{
    if (!strcmp(text, "none")) {
        *out = SL_FABRIC_ANY;
        return true;
    }
    return read_int(text, 63, out);
}

static bool read_shape(const char *key, const char *value, struct line *line)
{
    if (!strcmp(key, "rate"))
        return line->has_rate = read_number(value, 1000, UINT64_C(1) << 40, &line->rate);
    if (!strcmp(key, "queue"))
        return line->has_queue = read_number(value, 1024, UINT64_C(1) << 30, &line->queue);
    if (!strcmp(key, "mark"))
        return line->has_mark = read_number(value, 1024, UINT64_C(1) << 30, &line->mark);
    if (!strcmp(key, "high"))
        return line->has_high = read_high(value, &line->high);
    if (!strcmp(key, "high_share"))
        return line->has_high_share = read_share(value, &line->high_share);
    return line->has_share = read_share(value, &line->share);
}

static const char *const match_keys[] = {"in", "out", "port", "sport", "route", NULL};
static const char *const fault_keys[] = {"loss",    "dup",      "corrupt", "reorder",
                                         "hold_us", "delay_us", NULL};
static const char *const shape_keys[] = {"rate", "queue",      "mark", "phantom",
                                         "high", "high_share", NULL};

static bool read_word(const char *key, const char *value, struct line *line)
{
    const struct verb *verb = line->verb;
    if (verb->takes_match && is_one_of(key, match_keys))
        return read_match(key, value, line);
    if (verb->takes_fault && is_one_of(key, fault_keys))
        return read_fault(key, value, line);
    if (verb->takes_shape && is_one_of(key, shape_keys))
        return read_shape(key, value, line);
    if ((verb->takes_shape || verb->takes_port) && !strcmp(key, "port"))
        return read_int(value, SL_FABRIC_PORTS - 1, &line->of);
    if (verb->takes_value && !strcmp(key, "value"))
        return line->has_value = read_number(value, 1, UINT64_C(1) << 53, &line->value);
    return false;
}

static bool same_frames(const struct sl_fabric_rule *a, const struct sl_fabric_rule *b)
{
    return a->in == b->in && a->out == b->out && a->port == b->port && a->source == b->source &&
           a->source_end == b->source_end && a->route == b->route;
}

/* In place of the rule for the same frames, where there is one. */
static int fault(struct sl_fabric *fabric, struct line *line)
{
    unsigned at = 0;
    while (at < fabric->rule_count && !same_frames(&fabric->rules[at], &line->rule))
        at++;
    if (at == SL_FABRIC_RULES)
        return sl_fail(-EINVAL, "the switch has %d faults already: heal some", SL_FABRIC_RULES);
    fabric->rules[at] = line->rule;
    if (at == fabric->rule_count)
        fabric->rule_count++;
    return 0;
}

static int cut(struct sl_fabric *fabric, struct line *line)
{
    line->rule.loss = CERTAIN;
    return fault(fabric, line);
}

/* Without a match: all rules. */
static int heal(struct sl_fabric *fabric, struct line *line)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < fabric->rule_count; i++)
        if (line->names_frames && !same_frames(&fabric->rules[i], &line->rule))
            fabric->rules[kept++] = fabric->rules[i];
    fabric->rule_count = kept;
    return 0;
}

static int shape(struct sl_fabric *fabric, struct line *line)
{
    if (line->of >= (int)fabric->count)
        return sl_fail(-EINVAL, "the switch has no port %d, but 0 to %u", line->of,
                       fabric->count - 1);
    for (unsigned i = 0; i < fabric->count; i++) {
        struct sl_fabric_port *port = &fabric->ports[i];
        if (line->of != SL_FABRIC_ANY && line->of != (int)i)
            continue;
        if (line->has_rate) {
            port->rate = line->rate;
            port->free_ns = 0;
        }
        if (line->has_queue)
            port->limit = line->queue;
        if (line->has_mark)
            port->mark = line->mark;
        if (line->has_share)
            port->phantom_share = line->share;
        if (line->has_high)
            port->high = line->high;
        if (line->has_high_share)
            port->high_share = line->high_share;
    }
    return 0;
}

static int lossless(struct sl_fabric *fabric, struct line *line)
{
    fabric->is_lossless = !line->has_value || line->value != 0;
    return 0;
}

/* Without a port: no more. */
static int mirror(struct sl_fabric *fabric, struct line *line)
{
    if (line->of >= (int)fabric->count)
        return sl_fail(-EINVAL, "the switch has no port %d, but 0 to %u", line->of,
                       fabric->count - 1);
    fabric->mirror = line->of;
    return 0;
}

static int seed(struct sl_fabric *fabric, struct line *line)
{
    sl_rng_init(&fabric->rng, line->value);
    return 0;
}

static int reset(struct sl_fabric *fabric, struct line *line)
{
    for (unsigned i = 0; i < fabric->count; i++) {
        memset(&fabric->ports[i].counts, 0, sizeof(fabric->ports[i].counts));
        memset(fabric->ports[i].from, 0, sizeof(fabric->ports[i].from));
    }
    return 0;
}

static const struct verb verbs[] = {
    {.name = "fault", .apply = fault, .takes_match = true, .takes_fault = true},
    {.name = "cut", .apply = cut, .takes_match = true},
    {.name = "heal", .apply = heal, .takes_match = true},
    {.name = "shape", .apply = shape, .takes_shape = true},
    {.name = "lossless", .apply = lossless, .takes_value = true},
    {.name = "mirror", .apply = mirror, .takes_port = true},
    {.name = "seed", .apply = seed, .takes_value = true},
    {.name = "reset", .apply = reset},
};

/* text is cut into words. */
static int read_line(char *text, struct line *line)
{
    char *rest, *word = strtok_r(text, " \t\r\n", &rest);
    for (size_t i = 0; word && i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (!strcmp(word, verbs[i].name))
            line->verb = &verbs[i];
    if (!line->verb)
        return sl_fail(-EINVAL,
                       "'%s' is no command of the switch: fault, cut, heal, shape, lossless, "
                       "mirror, seed, reset, stats",
                       word ? word : "");
    while ((word = strtok_r(NULL, " \t\r\n", &rest)) != NULL) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = 0;
        if (!value || !read_word(word, value, line))
            return sl_fail(-EINVAL, "%s does not take '%s%s%s' (docs/dpdk.md, \"Switch\")",
                           line->verb->name, word, value ? "=" : "", value ? value : "");
    }
    return 0;
}

int sl_fabric_command(struct sl_fabric *fabric, const char *text)
{
    char words[LINE_MAX_BYTES];
    struct line line = {
        .rule = {.in = SL_FABRIC_ANY,
                 .out = SL_FABRIC_ANY,
                 .port = SL_FABRIC_ANY,
                 .source = SL_FABRIC_ANY,
                 .source_end = SL_FABRIC_ANY,
                 .route = SL_FABRIC_ANY,
                 .late_ns = LATE_NS},
        .of = SL_FABRIC_ANY,
    };
    if (strlen(text) >= sizeof(words))
        return sl_fail(-EINVAL, "a line of more than %d bytes", LINE_MAX_BYTES - 1);
    memcpy(words, text, strlen(text) + 1);
    int rc = read_line(words, &line);
    return rc < 0 ? rc : line.verb->apply(fabric, &line);
}

static void print_port(const struct sl_fabric *fabric, unsigned number, bool is_up, FILE *out)
{
    const struct sl_fabric_port *port = &fabric->ports[number];
    const struct sl_fabric_counts *c = &port->counts;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"in_frames", c->in_frames},
        {"in_bytes", c->in_bytes},
        {"out_frames", c->out_frames},
        {"out_bytes", c->out_bytes},
        {"lost", c->lost},
        {"duplicated", c->twice},
        {"corrupted", c->damaged},
        {"late", c->late},
        {"marked", c->marked},
        {"queue_full", c->full},
        {"high_frames", c->high},
        {"queue_bytes", port->queues[0].bytes + port->queues[1].bytes},
        {"queue_bytes_max", c->queue_most},
        {"queue_bytes_sum", c->queue_sum},
        {"phantom_bytes_max", c->phantom_most},
        {"short_frames", c->short_frames},
        {"short_wait_ns_sum", c->short_wait_sum},
        {"short_wait_ns_max", c->short_wait_most},
        {"behind_ns_sum", c->behind_sum},
        {"behind_ns_max", c->behind_most},
    };
    fprintf(out, "%s{\"port\": %u, \"up\": %s", number ? ", " : "", number,
            is_up ? "true" : "false");
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fprintf(out, ", \"%s\": %" PRIu64, rows[i].name, rows[i].value);
    fputs(", \"bytes_from\": [", out);
    for (unsigned i = 0; i < fabric->count; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", port->from[i]);
    fputs("]}", out);
}

void sl_fabric_print(const struct sl_fabric *fabric, const bool *up, FILE *out)
{
    fputs("{\"ports\": [", out);
    for (unsigned i = 0; i < fabric->count; i++)
        print_port(fabric, i, up[i], out);
    fputs("]}\n", out);
}
