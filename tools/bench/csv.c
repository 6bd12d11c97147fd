/* SPDX-License-Identifier: Apache-2.0 */
/* The run as comma-separated values: a line per size and placement, times in microseconds. */
#include "report.h"

#include "colls.h"

#include <inttypes.h>
#include <math.h>

/* Only where codecs were asked for: what reads the lines counts columns. */
static void write_codec(FILE *out, const struct sb_row *row, const struct sb_cell *cell)
{
    fprintf(out, ",\"%s\",", row->codec);
    if (cell->wire_bytes > 0)
        fprintf(out, "%.0f,%.6f", cell->wire_bytes, cell->wire_ratio);
    else
        fputc(',', out);
    if (cell->error >= 0)
        fprintf(out, ",%.6e", cell->error);
    else
        fputc(',', out);
}

static void write_cell(FILE *out, const struct sb_row *row, const struct sb_facts *facts, int place)
{
    const struct sb_cell *cell = &row->cell[place];

    if (!cell->valid)
        return;
    fprintf(out, "%s,%d,%" PRIu64 ",%" PRIu64 ",%s,%s,%d,%s,%" PRIu64 ",%.4f,",
            sb_colls[row->coll].name, facts->ranks, row->bytes, row->count,
            sb_colls[row->coll].sized ? sluice_dtype_name(row->dtype) : "none",
            row->op >= 0 ? sluice_op_name((enum sluice_op)row->op) : "none", row->root,
            place == 0 ? "out" : "in", cell->iters, cell->time_s * 1e6);
    if (cell->p50_s > 0)
        fprintf(out, "%.4f,%.4f,", cell->p50_s * 1e6, cell->p99_s * 1e6);
    else
        fprintf(out, ",,");
    if (isfinite(cell->algbw))
        fprintf(out, "%.6f,%.6f,", cell->algbw, cell->busbw);
    else
        fprintf(out, ",,");
    if (cell->wrong >= 0)
        fprintf(out, "%" PRId64, cell->wrong);
    if (row->codec != NULL)
        write_codec(out, row, cell);
    fputc('\n', out);
}

int sb_csv_write(const char *path, const struct sb_results *results)
{
    FILE *out;
    int err = sb_file_open(path, &out);

    if (err != 0)
        return err;
    fprintf(out,
            "collective,ranks,size_bytes,count,type,redop,root,placement,iters,time_us,p50_us,"
            "p99_us,algbw_GBps,busbw_GBps,wrong%s\n",
            results->options->codec_count > 0 ? ",codec,wire_bytes,wire_ratio,error" : "");
    for (size_t i = 0; i < results->row_count; i++)
        for (int place = 0; place < 2; place++)
            write_cell(out, &results->rows[i], &results->facts, place);
    return sb_file_close(path, out);
}
