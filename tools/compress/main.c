/* SPDX-License-Identifier: Apache-2.0 */
/* sluice-compress: encodes, decodes and inspects files, and says when compression pays here. */
#include "tools/compress/tool.h"

#include "core/err.h"

#include <getopt.h>
#include <sluice/sluice.h>
#include <stdlib.h>
#include <string.h>

static const char usage_head[] =
    "usage: sluice-compress encode --codec CODEC IN OUT\n"
    "       sluice-compress decode IN OUT\n"
    "       sluice-compress inspect [--original FILE] [--json] FILE\n"
    "       sluice-compress table [--link RATE] [--codec CODEC]... [--mib N] [--json]\n"
    "       sluice-compress --help | --version\n"
    "\n"
    "  encode   elements, as they lie in memory, to frames of an encoded message each\n"
    "  decode   frames to elements\n"
    "  inspect  what a file of frames holds; with the original, what the codec has cost\n"
    "  table    how fast the codecs are here, and for which links and sizes they pay\n"
    "\n"
    "  --codec CODEC    a name and what it takes: bq8, bq4:stochastic=on,seed=1, rans:dtype=bf16\n"
    "  --original FILE  the elements that were encoded\n"
    "  --link RATE      of the table: 100Mbit, 1Gbit (as by default), 400Gbit, 50GB\n"
    "  --mib N          of the table: size of a large message, 64 by default\n"
    "  --json           JSON in place of text\n"
    "\n"
    "A file may be -, which is standard input or output.\n"
    "\n"
    "Codecs (dtype=f32, bf16 or f16):\n";

static const char usage_examples[] =
    "\n"
    "Examples:\n"
    "  sluice-compress encode --codec rans:dtype=bf16 weights.bf16 weights.slcz\n"
    "  sluice-compress inspect --original weights.bf16 weights.slcz\n"
    "  sluice-compress decode weights.slcz - | cmp - weights.bf16\n"
    "  sluice-compress table --link 10Gbit --codec bq8 --codec bq4\n"
    "\n"
    "Exit status: 0; 1 when it could not be done; 2 when the arguments are wrong.\n";

static void print_usage(FILE *out)
{
    fputs(usage_head, out);
    for (size_t i = 0; sl_codec_row(i) != NULL; i++)
        fprintf(out, "  %-8s %s\n", sl_codec_row(i)->name, sl_codec_row(i)->help);
    fputs(usage_examples, out);
}

int tool_complain(void)
{
    fprintf(stderr, "sluice-compress: %s\n", sluice_last_error());
    return TOOL_FAILED;
}

static int refuse(const char *what, const char *which)
{
    fprintf(stderr, "sluice-compress: %s%s%s; --help shows how it is used\n", what,
            which != NULL ? " " : "", which != NULL ? which : "");
    return TOOL_ARGUMENTS;
}

/* "1Gbit", "400Gbit/s", "50GB". */
static bool parse_link(const char *text, double *bytes_per_second)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"kbit", 125},   {"Mbit", 125e3}, {"Gbit", 125e6},
                 {"Tbit", 125e9}, {"MB", 1e6},     {"GB", 1e9}};
    char *end;
    double number = strtod(text, &end);
    size_t len = strlen(end);

    if (end == text || text[0] < '0' || text[0] > '9' || !(number > 0 && number < 1e9))
        return false;
    if (len > 2 && strcmp(end + len - 2, "/s") == 0)
        len -= 2;
    for (size_t i = 0; i < SL_ARRAY_LEN(units); i++)
        if (strlen(units[i].unit) == len && strncmp(units[i].unit, end, len) == 0) {
            *bytes_per_second = number * units[i].bytes;
            return true;
        }
    return false;
}

static bool parse_mib(const char *text, size_t *bytes)
{
    char *end;
    unsigned long mib = strtoul(text, &end, 10);

    *bytes = (size_t)mib << 20;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && mib >= 1 && mib <= 4096;
}

enum { FOR_CODEC = 1, FOR_ORIGINAL = 2, FOR_LINK = 4, FOR_MIB = 8, FOR_JSON = 16 };

static const struct command {
    const char *name;
    int (*run)(const struct tool_options *options);
    int files;
    unsigned takes; /* FOR_... */
} commands[] = {
    {"encode", tool_encode, 2, FOR_CODEC},
    {"decode", tool_decode, 2, 0},
    {"inspect", tool_inspect, 1, FOR_ORIGINAL | FOR_JSON},
    {"table", tool_table, 0, FOR_CODEC | FOR_LINK | FOR_MIB | FOR_JSON},
};

static const struct option long_options[] = {
    {"codec", required_argument, NULL, FOR_CODEC},
    {"original", required_argument, NULL, FOR_ORIGINAL},
    {"link", required_argument, NULL, FOR_LINK},
    {"mib", required_argument, NULL, FOR_MIB},
    {"json", no_argument, NULL, FOR_JSON},
    {NULL, 0, NULL, 0},
};

static int take_option(int option, struct tool_options *out)
{
    switch (option) {
    case FOR_CODEC:
        if (out->codec_count == SL_ARRAY_LEN(out->codecs))
            return refuse("there are too many of --codec", NULL);
        out->codecs[out->codec_count++] = optarg;
        return 0;
    case FOR_ORIGINAL: out->original = optarg; return 0;
    case FOR_LINK:
        return parse_link(optarg, &out->link_bytes_per_second)
                   ? 0
                   : refuse("--link takes a rate such as 1Gbit or 50GB, not", optarg);
    case FOR_MIB:
        return parse_mib(optarg, &out->bytes) ? 0 : refuse("--mib takes 1 to 4096, not", optarg);
    default: out->json = true; return 0;
    }
}

static int run(const struct command *command, int argc, char **argv)
{
    struct tool_options options = {.link_bytes_per_second = 125e6, .bytes = (size_t)64 << 20};
    int option, err;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (option == '?')
            return refuse("what is", argv[optind - 1]);
        if ((command->takes & (unsigned)option) == 0) {
            fprintf(stderr, "sluice-compress: %s takes no option %s\n", command->name,
                    argv[optind - 1]);
            return TOOL_ARGUMENTS;
        }
        err = take_option(option, &options);
        if (err != 0)
            return err;
    }
    options.files = argv + optind;
    options.file_count = argc - optind;
    if (options.file_count != command->files) {
        fprintf(stderr, "sluice-compress: %s takes %d files, not %d\n", command->name,
                command->files, options.file_count);
        return TOOL_ARGUMENTS;
    }
    err = command->run(&options);
    if (fflush(stdout) != 0 && err == 0) {
        perror("sluice-compress: standard output");
        return TOOL_FAILED;
    }
    return err;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    if (strcmp(word, "--help") == 0) {
        print_usage(stdout);
        return TOOL_DONE;
    }
    if (strcmp(word, "--version") == 0) {
        printf("sluice-compress %s\n", sluice_version_string());
        return TOOL_DONE;
    }
    for (size_t i = 0; i < SL_ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].name, word) == 0)
            return run(&commands[i], argc - 1, argv + 1);
    if (word[0] == '\0') {
        print_usage(stderr);
        return TOOL_ARGUMENTS;
    }
    return refuse("there is no command", word);
}
