/* SPDX-License-Identifier: Apache-2.0 */
/* The prose of a verdict. What depends on the class alone is a row of a table. */
#include "monitor/cases/explain.h"
#include "core/err.h"
#include "monitor/diagnosis/verdict_text.h"
#include "monitor/diagnosis/wait_graph.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 100
#define OTHERS_SHOWN 12

static const struct row {
    const char *means, *compared, *decides, *next;
} rows[SL_VERDICT_CLASSES] = {
    [SL_VERDICT_NOT_HUNG] = {"Nothing is wrong with the job, as far as these inputs tell.",
                             "Operations that are pending, and for how long.",
                             "Inputs of the time at which it is thought to hang.", "Nothing."},
    [SL_VERDICT_HOST_STALLED] =
        {"Other ranks wait in a call that this rank has not made, and nothing that it did call is "
         "pending. Its process does not come to the next call.",
         "Of each member of each communicator: the oldest operation that is pending, the newest "
         "that "
         "it has called, the newest that it has ended.",
         "The stack of its process (py-spy dump, gdb): a lock, a data loader, storage, a stopped "
         "process. And its host's agent (/v1/status), which sees stopped, blocked and starved "
         "ones.",
         "Look at the stack of the process before it is killed. If it waits for storage or memory, "
         "look at the host; if for a lock of the program, the program is to be mended."},
    [SL_VERDICT_GPU_STUCK] = {"This rank has called an operation that another member has ended, "
                              "and which nobody can end "
                              "without all. It did its part, and does not know of the end: its GPU "
                              "or its engine does not "
                              "go on.",
                              "Of each member of each communicator: the oldest operation that is "
                              "pending, the newest that "
                              "it has called, the newest that it has ended.",
                              "An XID in the kernel's log of its host (an agent's /v1/status or "
                              "/v1/events); the stack of "
                              "its GPU's kernels.",
                              "Look at the kernel's log for XIDs, and run a GPU diagnosis on that "
                              "host before it is used "
                              "again."},
    [SL_VERDICT_DEAD] = {"The rank's process is gone, and others wait for it.",
                         "Which processes the sources have heard of, and which calls are pending.",
                         "The end of its log, its exit status, the kernel's log of its host.",
                         "Find out why it ended: out of memory, a signal, an XID, the host."},
    [SL_VERDICT_COMM_STUCK] =
        {"All members have called an operation, none has ended it, and none is at something "
         "earlier: "
         "the network between them, or a GPU in it.",
         "Of each member of each communicator: the oldest operation that is pending, and which "
         "GPUs "
         "have begun it, where the sources tell.",
         "Times per connection (Sluice's state pages, NCCL's profiler), which GPUs have begun "
         "(TORCH_NCCL_ENABLE_TIMING=1), and what the agents of these hosts say of their ports.",
         "Look at the ports of the hosts named above (sluicectl ports), then probe the pairs."},
    [SL_VERDICT_DEADLOCK] =
        {"Ranks wait for each other in a circle: each has not called what the next one waits in.",
         "Which rank waits in which operation for which other one.",
         "The order of calls in the program on these ranks.",
         "Mend the program. No node is at fault."},
    [SL_VERDICT_MISMATCH] =
        {"Members called different things as the same operation: another kind, size or type.",
         "Kind, number and shape of each member's operation.", "The code path of the smaller side.",
         "Mend the program. No node is at fault."},
    [SL_VERDICT_SLOW_RANK] =
        {"Its own work takes longer than that of ranks which do the same, and all wait for it.",
         "Own time of each step, without waits, of ranks with the same role; and the rank's own "
         "past.",
         "Clocks, temperature and PCIe links of its GPU (its host's agent), and the same rank on "
         "another host.",
         "Look at what slows the GPU (nvidia-smi -q -d PERFORMANCE), at other programs on the "
         "host, "
         "at its storage."},
    [SL_VERDICT_SLOW_SENDER] =
        {"What this object sends is slow, to whomever.",
         "Times on the wire of all pairs, as effects of senders, receivers and "
         "links.",
         "Probes between it and a peer that is fast with others.",
         "Look at its NIC, its PCIe link and its uplink."},
    [SL_VERDICT_SLOW_RECEIVER] =
        {"What this object receives is slow, from whomever.",
         "Times on the wire of all pairs, as effects of senders, receivers "
         "and links.",
         "Probes between it and a peer that is fast with others.",
         "Look at its NIC, its PCIe link and its downlink."},
    [SL_VERDICT_SLOW_LINK] =
        {"What passes between these two is slow; both are fast with others.",
         "Times on the wire of all pairs, as effects of senders, receivers and "
         "links.",
         "Probes over other paths between the two.",
         "Look at the cables and switch ports on the way."},
    [SL_VERDICT_NODE_SILENT] =
        {"Nothing is heard of the node's agent: the node, its network or the agent is down.",
         "The last will of its connection, its answers, and when it was heard of last.",
         "Its console, or its management controller; whether other services of it answer.",
         "Look at the node by its management controller; if it lives, at its agent (systemctl "
         "status sluiced) and its network."},
    [SL_VERDICT_NODE_FAULT] =
        {"The node's own agent has found this.", "What the agents of all other nodes find.",
         "The history of the check there (sluicectl events), and a test of the part.",
         "Look at the part that is named, and drain the node where its hardware is at fault."},
    [SL_VERDICT_SLOW_GROUP] = {"What crosses this part of the fabric is slow.",
                               "Times on the wire of all pairs, by the switches on their way.",
                               "Counters of the switch; probes that cross it and do not.",
                               "Look at the switch's log, and move jobs away from it."},
};

/* ---- words ---- */

/* Wrapped, after `first` on the first line and as many blanks on the others. */
static void wrap(FILE *out, const char *first, const char *text)
{
    size_t column = strlen(first), begin = column;

    fputs(first, out);
    while (*text != '\0') {
        size_t len = strcspn(text, " ");

        if (column > begin && column + 1 + len > WIDTH) {
            fprintf(out, "\n%*s", (int)begin, "");
            column = begin;
        } else if (column > begin) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, len, out);
        column += len;
        text += len + strspn(text + len, " ");
    }
    fputc('\n', out);
}

__attribute__((format(printf, 2, 3))) static void point(FILE *out, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0) {
        wrap(out, "  - ", text);
        free(text);
    }
    va_end(args);
}

/* ---- parts ---- */

static uint32_t ranks_told(const struct sl_job *job)
{
    uint32_t told = 0;

    for (uint32_t r = 0; r < job->rank_count; r++)
        told += job->ranks[r].is_told;
    return told;
}

static void say_compared(const struct sl_case *it, const struct sl_job *job, FILE *out)
{
    const struct sl_inputs *inputs = it->inputs;

    if (inputs->count == 1)
        point(out, "1 input: %s.", inputs->list[0].name);
    else
        point(out, "%zu inputs, %s to %s.", inputs->count, inputs->list[0].name,
              inputs->list[inputs->count - 1].name);
    point(out,
          "%u of %u ranks tell of themselves, in %u communicators: %zu operations, %zu counts, %zu "
          "connections, %zu samples.",
          ranks_told(job), job->rank_count, job->comm_count, job->op_count, job->count_count,
          job->edge_count, job->sample_count);
    if (job->event_count > 0 || job->fault_count > 0)
        point(out, "%zu findings of node agents, %zu faults of the nodes' history.",
              job->event_count, job->fault_count);
    else
        point(out, "No node agent and no history of nodes is among the inputs.");
}

/* How many ranks wait, and how many have nothing to do with it. */
static int say_others(const struct sl_case *it, struct sl_case_result *result,
                      const struct sl_verdict *verdict, FILE *out)
{
    const struct sl_judge_options rules = sl_case_rules(&it->options);
    struct sl_wait_graph graph;
    uint32_t waits = 0, astray = 0, is_free = 0;
    char object[256];
    int err = sl_wait_graph_make(result->job, &rules.hang, &result->verdicts, &graph);

    if (err != 0)
        return err;
    for (uint32_t i = 0; i < graph.box_count; i++) {
        waits += graph.boxes[i].role == SL_WAIT_WAITS ? graph.boxes[i].count : 0;
        astray += graph.boxes[i].role == SL_WAIT_ASTRAY ? graph.boxes[i].count : 0;
        is_free += graph.boxes[i].role == SL_WAIT_FREE ? graph.boxes[i].count : 0;
    }
    sl_wait_graph_free(&graph);
    if (verdict->cls < SL_VERDICT_SLOW_RANK && waits > 0)
        point(out,
              "%u ranks wait for what is accused, directly or by way of others: who only waits is "
              "not accused.",
              waits);
    if (verdict->cls < SL_VERDICT_SLOW_RANK && is_free > 0)
        point(out, "%u ranks have nothing pending, and nobody waits for them.", is_free);
    if (verdict->cls < SL_VERDICT_SLOW_RANK && astray > 0)
        point(out, "%u ranks are at something that does not lead to an accused one.", astray);
    if (verdict->cls >= SL_VERDICT_SLOW_RANK && verdict->cls < SL_VERDICT_JOB_CLASSES)
        point(out,
              "Nobody else passed the test, which allows one false alarm in 10,000 node-days.");
    for (uint32_t i = 0; i < verdict->other_count && i < OTHERS_SHOWN; i++) {
        sl_object_text(result->job, &verdict->others[i], object, sizeof(object));
        if (verdict->accused.kind == SL_OBJECT_PROGRAM)
            point(out, "%s is in it as well.", object);
        else
            point(out, "%s could be it as well: this data cannot tell them apart.", object);
    }
    if (verdict->other_count > OTHERS_SHOWN)
        point(out, "... and %u more of that set.", verdict->other_count - OTHERS_SHOWN);
    return 0;
}

static void say_causes(const struct sl_job *job, const struct sl_verdict *verdict, FILE *out)
{
    char object[256];

    for (uint32_t i = 0; i < verdict->cause_count && i < 5; i++) {
        sl_object_text(job, &verdict->causes[i].object, object, sizeof(object));
        point(out, "%.1f %%: %s of %s.", verdict->causes[i].probability * 100,
              sl_fault_name(verdict->causes[i].fault), object);
    }
    point(out, "%.1f %%: something else.", verdict->elsewhere * 100);
}

static void say_isolation(const struct sl_case *it, const struct sl_job *job,
                          const struct sl_verdict *verdict, FILE *out)
{
    const struct sl_judge_options rules = sl_case_rules(&it->options);

    if (verdict->accused.kind == SL_OBJECT_PROGRAM || verdict->cls == SL_VERDICT_NOT_HUNG)
        return;
    point(out,
          "Isolate %s: %s. That the hardware of its node is at fault has %.1f %%; %.1f %% are "
          "needed, so that of healthy nodes no more than %g a node and day are taken out.",
          verdict->node != 0 ? sl_job_string(job, verdict->node) : "the node",
          verdict->act ? "yes" : "no", verdict->node_probability * 100,
          sl_fuse_threshold(&rules.fuse) * 100, it->options.false_isolations);
    if (verdict->node == 0 && verdict->accused.kind == SL_OBJECT_RANK)
        point(out, "The inputs do not name the host of that rank: an agent's /v1/ranks would.");
}

/* What is missing among the inputs. */
static void say_missing(const struct sl_case *it, const struct sl_job *job,
                        const struct sl_verdict *verdict, FILE *out)
{
    if (verdict->cls < SL_VERDICT_SLOW_RANK && ranks_told(job) < job->rank_count)
        point(out, "The files of the %u ranks that tell nothing of themselves.",
              job->rank_count - ranks_told(job));
    if (job->event_count == 0)
        point(out, "Answers of the node agents (curl http://HOST:9494/v1/status): add them to the "
                   "files.");
    if (it->options.now_ns == SL_JOB_NEVER && job->now_ns == SL_JOB_NEVER &&
        verdict->cls < SL_VERDICT_SLOW_RANK)
        point(out,
              "When the files were written (--at): without it all that is pending counts as too "
              "old.");
}

int sl_explain(const struct sl_case *it, struct sl_case_result *result,
               const struct sl_verdict *verdict, FILE *out)
{
    const struct row *row = &rows[verdict->cls < SL_VERDICT_CLASSES ? verdict->cls : 0];
    const struct sl_job *job = result->job;
    char object[256];
    int err;

    sl_object_text(job, &verdict->accused, object, sizeof(object));
    if (verdict->cls == SL_VERDICT_NOT_HUNG)
        fprintf(out, "%s\n\n", sl_verdict_class_name(verdict->cls));
    else
        fprintf(out, "%s: %s, %.0f %% (verdict %s)\n\n", sl_verdict_class_name(verdict->cls),
                object, verdict->probability * 100, verdict->id);
    wrap(out, "", row->means);
    fputs("\nWhat was seen\n", out);
    for (uint32_t i = 0; i < verdict->evidence_count; i++)
        point(out, "%s.", verdict->evidence[i]);
    fputs("\nWhat it was compared with\n", out);
    point(out, "%s", row->compared);
    say_compared(it, job, out);
    fputs("\nWhy not another one\n", out);
    err = say_others(it, result, verdict, out);
    if (err != 0)
        return err;
    if (verdict->cause_count > 0) {
        fputs("\nWhat may be behind it\n", out);
        say_causes(job, verdict, out);
    }
    fputs("\nWhat would decide\n", out);
    point(out, "%s", row->decides);
    say_missing(it, job, verdict, out);
    fputs("\nWhat to do next\n", out);
    point(out, "%s", row->next);
    say_isolation(it, job, verdict, out);
    return 0;
}
