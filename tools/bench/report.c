/* SPDX-License-Identifier: Apache-2.0 */
/* The table on the terminal: nccl-tests' columns, so that what reads those reads these. */
#include "report.h"

#include "colls.h"
#include "paths.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

void sb_report_head(FILE *out, const struct sb_facts *facts, const struct sb_options *o)
{
    char iters[48], step[48];

    if (o->iters > 0)
        snprintf(iters, sizeof(iters), "%d", o->iters);
    else
        snprintf(iters, sizeof(iters), "auto (%g s a size)", o->budget_s);
    if (o->step_bytes > 0)
        snprintf(step, sizeof(step), "%" PRIu64 " bytes", o->step_bytes);
    else
        snprintf(step, sizeof(step), "x%g", o->factor);
    fprintf(out, "# sluice-bench %s\n", facts->version);
    fprintf(out, "# ranks: %d on %d host%s; paths: %s; algorithm: %s; kernel: %s; buffers: %s\n",
            facts->ranks, facts->hosts, facts->hosts == 1 ? "" : "s", facts->paths, facts->algo,
            facts->kernel, facts->allocation);
    fprintf(out,
            "# minbytes: %" PRIu64 " maxbytes: %" PRIu64
            " step: %s warmup iters: %d iters: %s agg iters: %d validation: %d calls: %s%s\n",
            o->min_bytes, o->max_bytes, step, o->warmup, iters, o->agg, o->check,
            o->blocking ? "blocking" : "nonblocking", o->persistent ? ", persistent" : "");
    if (o->compute_us != 0)
        fprintf(out,
                "# before each operation: %d us of computing over %" PRIu64
                " bytes; times are of both, p50 and p99 of the operation alone\n",
                o->compute_us, o->touch_bytes);
    if (facts->ranks == 1)
        fprintf(
            out, "# There is one rank only, so nothing is sent; -n 4 starts four ranks here.\n%s",
            (o->colls & 1u << SB_SENDRECV) != 0 ? "# sendrecv is left out: it takes two ranks.\n"
                                                : "");
    /* Who reads a pipe sees what runs, also when the first row takes long or never comes. */
    fflush(out);
}

void sb_report_table_head(FILE *out, const struct sb_row *row, const struct sb_options *o)
{
    const char *stats = o->stats ? "      p50      p99" : "",
               *units = o->stats ? "     (us)     (us)" : "";
    const char *codec = o->codec_count > 0 ? "      wire   ratio     error" : "",
               *wire_unit = o->codec_count > 0 ? "       (B)" : "";
    int half = (o->stats ? 50 : 32) + (int)strlen(codec);

    fprintf(out, "#\n# %s%s%s\n#\n", sb_colls[row->coll].name, row->codec != NULL ? " by " : "",
            row->codec != NULL ? row->codec : "");
    fprintf(out, "# %11s  %12s  %8s  %6s  %6s  %*s  %*s\n", "", "", "", "", "", half - 10,
            "out-of-place", half, "in-place");
    fprintf(out, "# %11s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; i++)
        fprintf(out, "  %8s%s  %6s  %6s  %6s%s", "time", stats, "algbw", "busbw", "#wrong", codec);
    fprintf(out, "\n# %11s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++)
        fprintf(out, "  %8s%s  %6s  %6s%s%s%*s", "(us)", units, "(GB/s)", "(GB/s)",
                i == 0 || codec[0] != '\0' ? "        " : "", wire_unit,
                i == 0 ? (int)(strlen(codec) - strlen(wire_unit)) : 0, "");
    fprintf(out, "\n");
}

/* Four digits or so, whatever the magnitude. */
static void print_time(FILE *out, double seconds)
{
    double us = seconds * 1e6;

    fprintf(out, us < 10 ? " %8.3f" : us < 1000 ? " %8.2f" : us < 100000 ? " %8.1f" : " %8.0f", us);
}

/* GB/s in six columns, whatever the magnitude. */
static void print_bandwidth(FILE *out, double value)
{
    if (!isfinite(value))
        fprintf(out, "  %6s", "N/A");
    else
        fprintf(out, value < 999 ? "  %6.2f" : value < 99999 ? "  %6.0f" : "  %6.0e", value);
}

/* What went by a codec. */
static void print_codec(FILE *out, const struct sb_cell *cell)
{
    if (!cell->valid || cell->wire_bytes == 0)
        fprintf(out, "  %8s  %6s", "N/A", "N/A");
    else
        fprintf(out, "  %8.0f  %6.4f", cell->wire_bytes, cell->wire_ratio);
    if (!cell->valid || cell->error < 0)
        fprintf(out, "  %8s", "N/A");
    else
        fprintf(out, "  %8.2e", cell->error);
}

static void print_cell(FILE *out, const struct sb_cell *cell, bool stats)
{
    if (!cell->valid) {
        fprintf(out, "  %8s", "N/A");
        if (stats)
            fprintf(out, " %8s %8s", "N/A", "N/A");
        fprintf(out, "  %6s  %6s  %6s", "N/A", "N/A", "N/A");
        return;
    }
    fputc(' ', out);
    print_time(out, cell->time_s);
    if (stats) {
        print_time(out, cell->p50_s);
        print_time(out, cell->p99_s);
    }
    print_bandwidth(out, cell->algbw);
    print_bandwidth(out, cell->busbw);
    if (cell->wrong < 0)
        fprintf(out, "  %6s", "N/A");
    else
        fprintf(out, "  %6" PRId64, cell->wrong);
}

void sb_report_row(FILE *out, const struct sb_row *row, const struct sb_options *o,
                   int64_t unix_time)
{
    bool typed = sb_colls[row->coll].sized;

    fprintf(out, "%13" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", row->bytes, row->count,
            typed ? sluice_dtype_name(row->dtype) : "none",
            row->op >= 0 ? sluice_op_name((enum sluice_op)row->op) : "none", row->root);
    for (int i = 0; i < 2; i++) {
        print_cell(out, &row->cell[i], o->stats);
        if (o->codec_count > 0)
            print_codec(out, &row->cell[i]);
    }
    if (o->timestamps) {
        time_t when = (time_t)unix_time;
        struct tm broken;
        char text[32];

        gmtime_r(&when, &broken);
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &broken);
        fprintf(out, "  %s", text);
    }
    fputc('\n', out);
    fflush(out);
}

void sb_report_tail(FILE *out, const struct sb_results *results)
{
    bool bad = results->wrong != 0 || results->differing != 0;

    if (results->paths != NULL && results->options->stats)
        sb_paths_report(out, results->paths);
    fprintf(out, "#\n");
    if (results->options->check == 0)
        fprintf(out, "# Out of bounds values : not checked\n");
    else
        fprintf(out, "# Out of bounds values : %" PRIu64 " %s\n", results->wrong,
                bad                      ? "FAILED"
                : results->error != NULL ? "INCOMPLETE"
                                         : "OK");
    if (results->differing != 0)
        fprintf(out, "# Results that were not the same bits on every rank : %" PRIu64 " FAILED\n",
                results->differing);
    fprintf(out, "# Avg bus bandwidth    : %g\n",
            results->busbw_count > 0 ? results->busbw_sum / results->busbw_count : 0);
    if (results->error != NULL)
        fprintf(out, "# Ended early          : %s\n# What stands above is all that was measured.\n",
                results->error);
    fprintf(out, "#\n");
    fflush(out);
}
