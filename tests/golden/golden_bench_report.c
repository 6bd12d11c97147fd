/* SPDX-License-Identifier: Apache-2.0 */
/* The table that sluice-bench prints, letter by letter: other programs read its columns. After a
 * wished change, run this program with the file's name and --write. */
#include "options.h"
#include "report.h"
#include "unit/bench/sample.h"

#include <stdlib.h>
#include <string.h>

static void print_run(FILE *out, bool stats)
{
    struct sb_options options;
    struct sample sample;

    sb_options_init(&options);
    options.stats = stats;
    options.timestamps = stats;
    options.iters = stats ? 20 : 0;
    sample_init(&sample, &options);
    sb_report_head(out, &sample.results.facts, &sample.options);
    for (int i = 0; i < SAMPLE_ROWS; i++) {
        if (i == 0 || sample.rows[i].coll != sample.rows[i - 1].coll)
            sb_report_table_head(out, &sample.rows[i], &sample.options);
        sb_report_row(out, &sample.rows[i], &sample.options, 1700000000);
    }
    if (stats) {
        static struct sample_paths paths;

        sample.results.paths = &paths.all; /* nothing to tell of */
        sb_report_tail(out, &sample.results);
        sample_paths_init(&paths);
        sb_report_tail(out, &sample.results);
        sample.results.paths = NULL;
        sample.results.wrong = 0;
        sample.results.error = "rank 1 is gone";
        sb_report_tail(out, &sample.results);
        sample.results.differing = 2;
        sample.results.error = "rank 1 is gone";
    }
    sb_report_tail(out, &sample.results);
}

static void print_codec(FILE *out)
{
    struct sb_options options;
    struct sample sample;

    sb_options_init(&options);
    sample_init(&sample, &options);
    sample_codec(&sample);
    sb_report_table_head(out, &sample.rows[0], &sample.options);
    for (int i = 0; i < 2; i++)
        sb_report_row(out, &sample.rows[i], &sample.options, 1700000000);
}

static char *read_all(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *in = fopen(path, "r");

    if (text != NULL && in != NULL)
        text[fread(text, 1, (1 << 20) - 1, in)] = '\0';
    if (in != NULL)
        fclose(in);
    return text;
}

/* Shows the first line that differs. */
static void explain(const char *want, const char *got)
{
    unsigned line = 1;

    while (*want != '\0' && strcspn(want, "\n") == strcspn(got, "\n") &&
           memcmp(want, got, strcspn(want, "\n")) == 0) {
        want += strcspn(want, "\n");
        got += strcspn(got, "\n");
        want += *want == '\n';
        got += *got == '\n';
        line++;
    }
    printf("# line %u should be '%.*s'\n# line %u is        '%.*s'\n", line,
           (int)strcspn(want, "\n"), want, line, (int)strcspn(got, "\n"), got);
}

int main(int argc, char **argv)
{
    char *got = NULL, *want;
    size_t len = 0;
    FILE *out = open_memstream(&got, &len);
    bool same;

    if (argc < 2 || out == NULL)
        return 2;
    print_run(out, false);
    print_run(out, true);
    print_codec(out);
    fclose(out);
    if (argc > 2 && strcmp(argv[2], "--write") == 0) {
        out = fopen(argv[1], "w");
        same = out != NULL && fwrite(got, 1, len, out) == len && fclose(out) == 0;
        free(got);
        return !same;
    }
    want = read_all(argv[1]);
    same = want != NULL && strcmp(want, got) == 0;
    printf("1..1\n%sok 1 - the_table_is_the_one_that_was_agreed\n", same ? "" : "not ");
    if (!same && want != NULL)
        explain(want, got);
    free(want);
    free(got);
    return same ? 0 : 1;
}
