/* SPDX-License-Identifier: Apache-2.0 */
/* A drawing of the run, bus bandwidth and time over size, by gnuplot where it is installed. */
#include "report.h"

#include "colls.h"
#include "core/err.h"

#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool has_program(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];

    for (; path != NULL && *path != '\0'; path += *path == ':') {
        size_t len = strcspn(path, ":");

        snprintf(file, sizeof(file), "%.*s/%s", (int)len, path, name);
        if (access(file, X_OK) == 0)
            return true;
        path += len;
    }
    return false;
}

int sb_plot_check(const char *path)
{
    size_t len = strlen(path);

    if (len < 4 || strcmp(path + len - 4, ".svg") != 0)
        return sl_fail(-EINVAL, "--plot writes SVG: give a name that ends in .svg, not '%s'", path);
    if (strchr(path, '\'') != NULL || strchr(path, '\n') != NULL)
        return sl_fail(-EINVAL, "--plot takes no name with a quote or a line break");
    if (!has_program("gnuplot"))
        return sl_fail(-ENOTSUP,
                       "--plot needs gnuplot, which is not installed here: install gnuplot-nox (or "
                       "gnuplot), or use --csv and draw elsewhere");
    return 0;
}

static bool same_curve(const struct sb_row *a, const struct sb_row *b)
{
    return a->coll == b->coll && a->dtype == b->dtype && a->op == b->op && a->root == b->root;
}

/* One block of data per curve; sizes ascend within it. */
static void write_data(FILE *script, const struct sb_results *results, int place, unsigned *curves)
{
    const struct sb_row *last = NULL;

    for (size_t i = 0; i < results->row_count; i++) {
        const struct sb_row *row = &results->rows[i];
        const struct sb_cell *cell = &row->cell[place];

        if (!cell->valid || row->bytes == 0)
            continue;
        if (last == NULL || !same_curve(last, row) || row->bytes <= last->bytes) {
            if (last != NULL)
                fprintf(script, "EOD\n");
            fprintf(script, "$curve%u << EOD\n", (*curves)++);
        }
        fprintf(script, "%llu %.4f %.6f\n", (unsigned long long)row->bytes, cell->time_s * 1e6,
                cell->busbw);
        last = row;
    }
    if (last != NULL)
        fprintf(script, "EOD\n");
}

static void write_titles(FILE *script, const struct sb_results *results, int place,
                         unsigned *curves, int column)
{
    const struct sb_row *last = NULL;

    for (size_t i = 0; i < results->row_count; i++) {
        const struct sb_row *row = &results->rows[i];

        if (!row->cell[place].valid || row->bytes == 0)
            continue;
        if (last == NULL || !same_curve(last, row) || row->bytes <= last->bytes) {
            fprintf(script, "%s $curve%u using 1:%d with linespoints title '%s %s%s%s %s'",
                    *curves == 0 ? "plot" : ",", *curves, column, sb_colls[row->coll].name,
                    sluice_dtype_name(row->dtype), row->op >= 0 ? " " : "",
                    row->op >= 0 ? sluice_op_name((enum sluice_op)row->op) : "",
                    place == 0 ? "out-of-place" : "in-place");
            (*curves)++;
        }
        last = row;
    }
}

static unsigned write_script(FILE *script, const char *path, const struct sb_results *results)
{
    unsigned curves = 0, title = 0;

    fprintf(script,
            "set terminal svg size 900,900 dynamic background rgb 'white'\n"
            "set output '%s'\n",
            path);
    for (int place = 0; place < 2; place++)
        write_data(script, results, place, &curves);
    if (curves == 0)
        return 0;
    fprintf(script,
            "set multiplot layout 2,1 title 'sluice-bench: %d ranks, %s'\n"
            "set logscale x 2\nset format x '%%.0b %%BB'\nset grid\nset key left top\n"
            "set xlabel 'size'\nset ylabel 'bus bandwidth (GB/s)'\n",
            results->facts.ranks, results->facts.paths);
    for (int place = 0; place < 2; place++)
        write_titles(script, results, place, &title, 3);
    fprintf(script, "\nset logscale y 10\nset ylabel 'time (us)'\n");
    title = 0;
    for (int place = 0; place < 2; place++)
        write_titles(script, results, place, &title, 2);
    fprintf(script, "\nunset multiplot\n");
    return curves;
}

static int run_gnuplot(const char *script)
{
    char name[] = "gnuplot";
    char *file = strdup(script);
    char *argv[] = {name, file, NULL};
    int status = 0, err;
    pid_t pid;

    if (file == NULL)
        return sl_fail(-ENOMEM, "no memory to call gnuplot");
    err = posix_spawnp(&pid, "gnuplot", NULL, NULL, argv, environ);
    free(file);
    if (err != 0)
        return sl_fail(-err, "cannot start gnuplot: %s", strerror(err));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return sl_fail(-EIO, "gnuplot did not make the drawing (its message is above)");
    return 0;
}

int sb_plot_write(const char *path, const struct sb_results *results)
{
    char name[] = "/tmp/sluice-bench-XXXXXX";
    int err = sb_plot_check(path), fd;
    FILE *script;

    if (err != 0)
        return err;
    fd = mkstemp(name);
    script = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (script == NULL) {
        err = -errno;
        if (fd >= 0)
            close(fd);
        return sl_fail(err, "cannot write the gnuplot script %s: %s", name, strerror(-err));
    }
    if (write_script(script, path, results) == 0)
        err = sl_fail(-EINVAL, "there is nothing to draw: no size was measured");
    if (fclose(script) != 0 && err == 0)
        err = sl_fail(-errno, "cannot write the gnuplot script %s: %s", name, strerror(errno));
    if (err == 0)
        err = run_gnuplot(name);
    unlink(name);
    return err;
}
