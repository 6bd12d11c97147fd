/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of checks. P(seen | fault): from the InfiniteHBD trace where it names the finding (of
 * 158 GPU faults 60 were double bit errors, 25 a narrow PCIe link, 11 XIDs, 5 lost GPUs; of 40
 * cable faults 40 were links down; of 30 NIC faults 11 GIDs, 10 speeds, 8 lost NICs, 1 a narrow
 * PCIe link); else an assumption, of one digit. How often a host shows it without such a fault, a
 * day: an assumption, which what other hosts show at the same time corrects: a condition that half
 * of the cluster has accuses nobody.
 */
#include "monitor/diagnosis/evidence.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_NS (600 * (int64_t)1000000000)
#define HALF_LIFE_NS 3600e9
#define FORGOTTEN 0.05   /* of its weight */
#define WINDOW_DAYS 0.05 /* in which a condition counts about whole: 72 minutes */
#define HOSTS_ASSUMED 20 /* so many hosts' worth is what the table says of a healthy host */
#define RATIO_MAX 1e4    /* nobody knows rarer things */

enum { LINK, BITS, LOSS, QUEUE_PAIRS, NIC, BUS, XID, MEMORY, HEAT, PROCESS, KERNEL };

static const struct row {
    const char *check;
    uint8_t family;
    double seen[SL_FAULTS]; /* GPU, NIC, cable, host, software */
    double healthy;         /* hosts that show it without such a fault, a day */
} rows[] = {
    {"link_down", LINK, {0, 0.3, 0.95, 0.05, 0}, 0.003},
    {"link_flap", LINK, {0, 0.1, 0.5, 0, 0}, 0.02},
    {"link_speed", LINK, {0, 0.33, 0.1, 0, 0}, 0.005},
    {"port_event", LINK, {0, 0.2, 0.5, 0, 0}, 0.02},
    {"symbol_errors", BITS, {0, 0.1, 0.5, 0, 0}, 0.02},
    {"link_recovery", BITS, {0, 0.1, 0.4, 0, 0}, 0.02},
    {"link_integrity", BITS, {0, 0.1, 0.3, 0, 0}, 0.003},
    {"receive_errors", BITS, {0, 0.1, 0.4, 0, 0}, 0.02},
    {"damaged_segments", BITS, {0, 0.2, 0.1, 0, 0}, 0.003},
    {"packet_loss", LOSS, {0, 0.3, 0.5, 0, 0}, 0.1},
    {"path_loss", LOSS, {0, 0.3, 0.5, 0, 0}, 0.1},
    {"path_blackout", LOSS, {0, 0.3, 0.5, 0.2, 0}, 0.02},
    {"transmit_discards", LOSS, {0, 0.2, 0.2, 0, 0}, 0.1},
    {"path_slow", LOSS, {0, 0.2, 0.2, 0, 0}, 0.1},
    {"rank_paths", LOSS, {0, 0.5, 0.5, 0, 0}, 0.02},
    {"queue_pair_error", QUEUE_PAIRS, {0, 0.3, 0.5, 0, 0}, 0.1},
    {"qp_fatal", QUEUE_PAIRS, {0, 0.2, 0, 0, 0}, 0.005},
    {"transmit_stall", NIC, {0, 0.1, 0, 0, 0}, 0.005},
    {"transmit_timeout", NIC, {0, 0.2, 0, 0, 0}, 0.002},
    {"gid_gone", NIC, {0, 0.37, 0, 0, 0}, 0.01},
    {"nic_gone", NIC, {0, 0.27, 0, 0.02, 0}, 0.001},
    {"nic_driver", NIC, {0, 0.3, 0, 0, 0}, 0.005},
    {"nic_pcie", BUS, {0, 0.03, 0, 0.02, 0}, 0.002},
    {"nic_bus_errors", BUS, {0, 0.1, 0, 0.05, 0}, 0.01},
    {"nic_bus_fatal", BUS, {0, 0.1, 0, 0.05, 0}, 0.001},
    {"nic_bus_corrected", BUS, {0, 0.1, 0, 0.05, 0}, 0.02},
    {"gpu_pcie", BUS, {0.16, 0, 0, 0.02, 0}, 0.002},
    {"gpu_fatal", XID, {0.3, 0, 0, 0.02, 0}, 0.001},
    {"gpu_lost", XID, {0.03, 0, 0, 0.02, 0}, 0.0005},
    {"gpu_error", XID, {0.2, 0, 0, 0, 0.2}, 0.02},
    {"gpu_driver", XID, {0.06, 0, 0, 0.02, 0}, 0.002},
    {"gpu_memory", MEMORY, {0.1, 0, 0, 0, 0}, 0.0005},
    {"gpu_ecc", MEMORY, {0.38, 0, 0, 0, 0}, 0.003},
    {"gpu_nvlink", BUS, {0.1, 0, 0, 0, 0}, 0.003},
    {"gpu_slowed", HEAT, {0.05, 0, 0, 0.3, 0}, 0.02},
    {"stopped", PROCESS, {0, 0, 0, 0, 0.1}, 0.01},
    {"throttled", PROCESS, {0, 0, 0, 0, 0.1}, 0.02},
    {"starved", PROCESS, {0, 0, 0, 0.05, 0.1}, 0.02},
    {"blocked", PROCESS, {0, 0, 0, 0.2, 0.1}, 0.01},
    {"memory_pressure", PROCESS, {0, 0, 0, 0.05, 0.1}, 0.01},
    {"died", PROCESS, {0.1, 0.02, 0.02, 0.2, 0.3}, 0.05},
    {"communicator", PROCESS, {0.2, 0.2, 0.2, 0.2, 0.2}, 0.2},
    {"machine_check", KERNEL, {0, 0, 0, 0.05, 0}, 0.0005},
    {"hung_task", KERNEL, {0.05, 0, 0, 0.2, 0.02}, 0.005},
    {"out_of_memory", KERNEL, {0, 0, 0, 0.02, 0.1}, 0.01},
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* Rows by the numbers of texts, as there are few checks and many events. */
struct memory {
    uint32_t text[64];
    uint8_t row[64]; /* plus 1; 0: there is none */
};

/* NULL: nothing is known of that check. */
static const struct row *row_of(struct memory *memory, const struct sl_job *job, uint32_t check)
{
    uint32_t slot = check % 64;
    const char *text;

    if (check == 0)
        return NULL;
    if (memory->text[slot] != check) {
        text = sl_job_string(job, check);
        memory->text[slot] = check;
        memory->row[slot] = 0;
        for (size_t i = 0; i < ROWS && memory->row[slot] == 0; i++)
            if (strcmp(rows[i].check, text) == 0)
                memory->row[slot] = (uint8_t)(i + 1);
    }
    return memory->row[slot] > 0 ? &rows[memory->row[slot] - 1] : NULL;
}

double sl_evidence_silence(enum sl_fault fault)
{
    /* The share of the trace's faults whose finding one of these checks sees, less a fifth that an
     * agent may miss; of hosts and software an assumption. */
    static const double seen[SL_FAULTS] = {0.52, 0.8, 0.8, 0.2, 0.1};

    return 1 - seen[fault];
}

/* 1: within the incident; less where it was long before or after it. */
static double weight_of(const struct sl_job_event *event, int64_t when_ns)
{
    double gap = 0;

    if (when_ns == SL_JOB_NEVER || event->at_ns == SL_JOB_NEVER)
        return 1;
    if (event->end_ns < when_ns - NEAR_NS)
        gap = (double)(when_ns - NEAR_NS) - (double)event->end_ns;
    else if (event->at_ns > when_ns && event->at_ns - when_ns > NEAR_NS)
        gap = (double)event->at_ns - (double)when_ns - (double)NEAR_NS;
    return exp2(-gap / HALF_LIFE_NS);
}

/* ---- who else has it ---- */

struct shown {
    uint32_t row, host;
};

static int by_row(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return x->host < y->host ? -1 : x->host > y->host;
}

/* How many hosts show each check, and how many there are. */
struct census {
    double hosts[ROWS];
    double all;
};

static uint32_t count_hosts(struct shown *shown, size_t count)
{
    uint32_t hosts = 0;

    for (size_t i = 0; i < count; i++)
        shown[i].row = 0;
    qsort(shown, count, sizeof(*shown), by_row);
    for (size_t i = 0; i < count; i++)
        hosts += i == 0 || shown[i].host != shown[i - 1].host;
    return hosts;
}

static int take_census(const struct sl_job *job, struct memory *memory, int64_t when_ns,
                       struct census *out)
{
    struct shown *shown = reallocarray(NULL, job->event_count + 1, sizeof(*shown));
    size_t count = 0, all = 0;

    *out = (struct census){.all = 0};
    if (shown == NULL)
        return sl_fail(-ENOMEM, "no memory for what agents told");
    for (size_t i = 0; i < job->event_count; i++) {
        const struct row *row = row_of(memory, job, job->events[i].check);

        if (row != NULL && weight_of(&job->events[i], when_ns) >= 0.5)
            shown[count++] = (struct shown){(uint32_t)(row - rows), job->events[i].host};
    }
    qsort(shown, count, sizeof(*shown), by_row);
    for (size_t i = 0; i < count; i++)
        out->hosts[shown[i].row] += i == 0 || by_row(&shown[i], &shown[i - 1]) != 0;
    for (size_t i = 0; i < job->event_count; i++)
        shown[all++].host = job->events[i].host;
    out->all = count_hosts(shown, all);
    free(shown);
    return 0;
}

/* ---- ratios ---- */

/* The chance that a host without such a fault shows it, by the table and by the other hosts. */
static double chance_of(const struct row *row, double others_with, double others)
{
    double assumed = row->healthy * WINDOW_DAYS;

    return (assumed * HOSTS_ASSUMED + others_with) / (HOSTS_ASSUMED + others);
}

static void fill_ratios(const struct row *row, double chance, double weight, double out[SL_FAULTS])
{
    for (unsigned i = 0; i < SL_FAULTS; i++) {
        double ratio = (row->seen[i] + (1 - row->seen[i]) * chance) / chance;

        ratio = ratio < RATIO_MAX ? ratio : RATIO_MAX;
        out[i] = row->seen[i] > 0 ? pow(ratio, weight) : 1;
    }
}

static double strongest(const struct sl_evidence *it)
{
    double most = 0;

    for (unsigned i = 0; i < SL_FAULTS; i++)
        most = it->ratio[i] > most ? it->ratio[i] : most;
    return most;
}

static int by_text(const struct sl_job *job, uint32_t a, uint32_t b)
{
    return a == b ? 0 : strcmp(sl_job_string(job, a), sl_job_string(job, b));
}

static int by_evidence(const void *a, const void *b, void *context)
{
    const struct sl_evidence *x = a, *y = b;
    const struct sl_job *job = context;
    const struct sl_job_event *p = &job->events[x->event], *q = &job->events[y->event];
    double s = strongest(x), t = strongest(y);
    int order;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    if (x->family != y->family)
        return x->family < y->family ? -1 : 1;
    if (s < t || s > t)
        return s > t ? -1 : 1;
    order = by_text(job, p->check, q->check) ?: by_text(job, p->subject, q->subject);
    if (order == 0 && p->at_ns != q->at_ns)
        order = p->at_ns < q->at_ns ? -1 : 1;
    return order != 0 ? order : by_text(job, p->text, q->text);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

int sl_evidence_find(const struct sl_job *job, int64_t when_ns, struct sl_evidence_list *out)
{
    struct memory memory = {.row = {0}};
    struct census census;

    *out = (struct sl_evidence_list){.list = NULL};
    if (job->event_count == 0)
        return 0;
    out->list = calloc(job->event_count, sizeof(*out->list));
    out->heard = calloc(job->event_count, sizeof(*out->heard));
    if (out->list == NULL || out->heard == NULL ||
        take_census(job, &memory, when_ns, &census) != 0) {
        sl_evidence_free(out);
        return sl_fail(-ENOMEM, "no memory for what agents told");
    }
    for (size_t i = 0; i < job->event_count; i++) {
        const struct sl_job_event *event = &job->events[i];
        const struct row *row = row_of(&memory, job, event->check);
        double weight = weight_of(event, when_ns), chance;

        if (event->check == 0 && weight >= 0.5)
            out->heard[out->heard_count++] = event->host;
        if (row == NULL || weight < FORGOTTEN)
            continue;
        chance = chance_of(row, census.hosts[row - rows] > 1 ? census.hosts[row - rows] - 1 : 0,
                           census.all > 1 ? census.all - 1 : 0);
        out->list[out->count] =
            (struct sl_evidence){.host = event->host, .family = row->family, .event = i};
        fill_ratios(row, chance, weight, out->list[out->count++].ratio);
    }
    qsort_r(out->list, out->count, sizeof(*out->list), by_evidence, (void *)(uintptr_t)job);
    qsort(out->heard, out->heard_count, sizeof(*out->heard), by_number);
    return 0;
}

void sl_evidence_free(struct sl_evidence_list *evidence)
{
    free(evidence->list);
    free(evidence->heard);
    *evidence = (struct sl_evidence_list){.list = NULL};
}

size_t sl_evidence_of(const struct sl_evidence_list *evidence, uint32_t host, size_t *first)
{
    size_t low = 0, high = evidence->count, end;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (evidence->list[middle].host < host)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < evidence->count && evidence->list[end].host == host;)
        end++;
    *first = low;
    return end - low;
}

bool sl_evidence_heard(const struct sl_evidence_list *evidence, uint32_t host)
{
    return evidence->heard_count > 0 &&
           bsearch(&host, evidence->heard, evidence->heard_count, sizeof(host), by_number) != NULL;
}

/* Without the number that tells devices of a kind apart: 5 of "mlx5_3". */
static size_t stem_len(const char *name, size_t len)
{
    while (len > 0 && name[len - 1] >= '0' && name[len - 1] <= '9')
        len--;
    return len;
}

/* "pid 12", and what else a source has behind it. */
static bool is_other_process(const char *subject, const char *process)
{
    return strncmp(subject, "pid ", 4) == 0 && strncmp(process, "pid ", 4) == 0 &&
           strtol(subject + 4, NULL, 10) != strtol(process + 4, NULL, 10);
}

bool sl_evidence_is_elsewhere(const struct sl_job *job, const struct sl_evidence *it,
                              const char *device)
{
    const struct sl_job_event *event = &job->events[it->event];
    const char *subject = sl_job_string(job, event->subject);
    size_t m = strcspn(subject, ":"), n = strlen(device), stem = stem_len(device, n);

    if (strcmp(sl_job_string(job, event->kind), "process") == 0)
        return is_other_process(subject, device);
    if (n == 0 || strcmp(sl_job_string(job, event->kind), "port") != 0 ||
        (m == n && memcmp(subject, device, n) == 0))
        return false;
    /* A rail may be named in another way than its ports: nothing is known of that. */
    return stem > 0 && stem < n && stem_len(subject, m) == stem &&
           memcmp(subject, device, stem) == 0;
}

void sl_evidence_weigh(const struct sl_evidence_list *evidence, const struct sl_job *job,
                       uint32_t host, const char *device, double out[SL_FAULTS])
{
    size_t first = 0, count = host != 0 ? sl_evidence_of(evidence, host, &first) : 0;
    bool is_heard = host != 0 && sl_evidence_heard(evidence, host);

    for (unsigned f = 0; f < SL_FAULTS; f++) {
        double product = 1, best = 1;

        for (size_t i = 0; i < count; i++) {
            const struct sl_evidence *it = &evidence->list[first + i];

            if (it->ratio[f] > best && !sl_evidence_is_elsewhere(job, it, device))
                best = it->ratio[f];
            if (i + 1 == count || it[1].family != it->family) {
                product *= best;
                best = 1;
            }
        }
        out[f] = product > 1 || !is_heard ? product : sl_evidence_silence((enum sl_fault)f);
    }
}
