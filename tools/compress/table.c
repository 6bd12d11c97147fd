/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-compress table: how fast each codec is on this machine, and for which links and sizes of
 * an allreduce the engine compresses by it. It predicts as the engine does (pays.h), but for speeds
 * of codecs, which are measured here: "work" in --json has them beside those that the engine takes.
 */
#include "tools/compress/pays.h"
#include "tools/compress/tool.h"

#include "compress/work.h"
#include "core/err.h"

/* Where the text does not say: all codecs as they are by default, and these. */
static const char *const more[] = {"palette:dtype=bf16", "rans:dtype=bf16"};

struct line {
    char name[96];
    struct sl_codec_spec spec;
    struct speed speed;
    struct sl_code_work work;
    double below, gain;
    size_t from;
};

static bool make_line(const char *text, struct line *out)
{
    *out = (struct line){0};
    if (sl_codec_parse(text, &out->spec) != 0)
        return false;
    sl_codec_print(&out->spec, out->name, sizeof(out->name));
    return true;
}

static int measure_line(struct line *line, const struct speed_buffers *b,
                        const struct pays_machine *machine, double link)
{
    struct pays_codec codec;
    int err = speed_measure(b, &line->spec, &line->speed);

    if (err != 0)
        return err;
    pays_init(&codec, &line->spec, machine, &line->speed);
    line->work = codec.code.work;
    line->below = pays_below(&codec, machine, b->bytes);
    line->from = pays_from(&codec, machine, link, b->bytes);
    line->gain = pays_gain(&codec, machine, link, b->bytes);
    return 0;
}

/* ---- what is said ---- */

static void print_head(const struct tool_options *options, const struct pays_machine *machine)
{
    printf("One core of this machine: copies %.1f GB/s in its caches. Link: %g Gbit/s. An "
           "allreduce of two hosts "
           "pays:\n"
           "up to that rate, of %zu MiB; at that link, from that size on, and so many times faster "
           "for %zu MiB.\n\n",
           1e-9 / machine->copy, options->link_bytes_per_second * 8e-9, options->bytes >> 20,
           options->bytes >> 20);
    printf("%-22s %6s %7s %7s %7s   %10s  %9s %7s\n", "", "wire", "encode", "decode", "and add",
           "pays up to", "pays from", "gain");
    printf("%-22s %6s %7s %7s %7s   %10s  %9s %7s\n", "codec", "part", "GB/s", "GB/s", "GB/s",
           "Gbit/s", "", "");
}

static void print_size(size_t bytes)
{
    if (bytes == 0)
        printf("  %9s", "never");
    else if (bytes >= 1 << 20)
        printf("  %5zu MiB", bytes >> 20);
    else
        printf("  %5zu KiB", bytes >> 10);
}

static void print_line(const struct line *line)
{
    printf("%-22s %6.4f %7.2f %7.2f %7.2f   %10.1f", line->name, line->speed.wire,
           line->speed.encode * 1e-9, line->speed.decode * 1e-9, line->speed.add * 1e-9,
           line->below * 8e-9);
    print_size(line->from);
    printf(" %6.2fx\n", line->gain);
}

static void print_json_work(const char *name, const struct sl_code_work *work)
{
    printf(", \"%s\": {\"encode\": %.4g, \"decode\": %.4g, \"add\": %.4g}", name,
           (double)work->encode, (double)work->decode, (double)work->add);
}

static void print_json_line(const struct line *line, bool first)
{
    struct sl_code_work engine = sl_codec_work(&line->spec);

    printf("%s\n  {\"codec\": \"%s\", \"wire\": %.6g, \"encode_bytes_per_second\": %.6g, "
           "\"decode_bytes_per_second\": %.6g, \"add_bytes_per_second\": %.6g, "
           "\"pays_below\": %.6g, \"gain\": %.6g",
           first ? "" : ",", line->name, line->speed.wire, line->speed.encode, line->speed.decode,
           line->speed.add, line->below, line->gain);
    print_json_work("work", &line->work);
    print_json_work("work_by_engine", &engine);
    printf(line->from > 0 ? ", \"pays_from_bytes\": %zu}" : ", \"pays_from_bytes\": null}",
           line->from);
}

/* ---- the command ---- */

/* The idx-th text to measure; NULL: no more. */
static const char *text_of(const struct tool_options *options, unsigned idx)
{
    unsigned rows = 0;

    if (options->codec_count > 0)
        return idx < options->codec_count ? options->codecs[idx] : NULL;
    while (sl_codec_row(rows) != NULL)
        rows++;
    if (idx < rows)
        return sl_codec_row(idx)->name;
    return idx - rows < SL_ARRAY_LEN(more) ? more[idx - rows] : NULL;
}

static void print_json_head(const struct tool_options *options, const struct pays_machine *machine)
{
    printf("{\"link_bytes_per_second\": %.6g, \"copy_bytes_per_second\": %.6g, "
           "\"unit_seconds_per_byte\": %.6g, \"message_bytes\": %zu, \"codecs\": [",
           options->link_bytes_per_second, 1 / machine->copy, machine->unit, options->bytes);
}

static int measure_all(const struct tool_options *options, const struct speed_buffers *b)
{
    const struct pays_machine machine = {.copy = speed_of_copy(b), .unit = speed_of_unit(b)};
    bool first = true;
    int err = 0;

    if (options->json)
        print_json_head(options, &machine);
    else
        print_head(options, &machine);
    for (unsigned i = 0; err == 0 && text_of(options, i) != NULL; i++) {
        struct line line;

        if (!make_line(text_of(options, i), &line)) {
            if (options->codec_count > 0)
                err = -EINVAL;
            continue; /* one that needs a parameter: it is measured when it is named */
        }
        if (line.spec.id == SL_CODEC_RAW || !speed_fits(b, &line.spec))
            continue;
        err = measure_line(&line, b, &machine, options->link_bytes_per_second);
        if (err == 0 && options->json)
            print_json_line(&line, first);
        else if (err == 0)
            print_line(&line);
        fflush(stdout);
        first = false;
    }
    if (options->json)
        printf("\n]}\n");
    return err;
}

int tool_table(const struct tool_options *options)
{
    struct speed_buffers b = {0};
    int err = speed_init(&b, options->bytes);

    for (unsigned i = 0; err == 0 && i < options->codec_count; i++) {
        struct line line;

        if (!make_line(options->codecs[i], &line))
            err = -EINVAL;
    }
    if (err == 0)
        err = measure_all(options, &b);
    speed_fini(&b);
    return err != 0 ? tool_complain() : TOOL_DONE;
}
