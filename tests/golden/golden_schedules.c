/* SPDX-License-Identifier: Apache-2.0 */
/* A few printed schedules, compared with golden_schedules.txt; run with "print" to write them
 * anew. */
#include "tests/util/shapes.h"

#include <stdio.h>

static void print_all(FILE *out)
{
    static const uint16_t seven_of_eight[] = {1000, 875, 1000, 1000};
    const struct {
        const char *algo;
        enum sl_coll coll;
        uint32_t rank, size;
        uint64_t count, chunk;
        const uint16_t *speed;
    } cases[] = {
        {"ring", SL_ALLREDUCE, 1, 3, 90, 0},
        {"flat", SL_ALLREDUCE, 0, 4, 12, 0},
        {"direct", SL_ALLREDUCE, 1, 3, 1000, 512},
        {"halving", SL_ALLREDUCE, 2, 6, 100, 0},
        {"binomial", SL_GATHER, 2, 5, 10, 0},
        {"dtree", SL_ALLREDUCE, 2, 5, 64, 16},
        {"weighted", SL_ALLREDUCE, 0, 4, 1000, 200, seven_of_eight},
        {"weighted", SL_REDUCE_SCATTER, 0, 4, 200, 100, seven_of_eight},
        {"weighted", SL_ALL_GATHER, 1, 4, 200, 100, seven_of_eight},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sl_shape shape = {.coll = cases[i].coll,
                                 .rank = cases[i].rank,
                                 .size = cases[i].size,
                                 .count = cases[i].count,
                                 .esize = 4,
                                 .chunk = cases[i].chunk,
                                 .speed = cases[i].speed,
                                 .win_count = 1 << 20};
        struct sl_schedule s;

        fprintf(out, "# %s, rank %u of %u, %u elements\n", sl_coll_name(shape.coll), shape.rank,
                shape.size, (unsigned)shape.count);
        if (test_algo(cases[i].algo)->build(&shape, &s) == 0)
            sl_schedule_print(&s, out);
        sl_schedule_fini(&s);
    }
}

int main(int argc, char **argv)
{
    static char want[65536], got[65536];

    if (argc == 2 && strcmp(argv[1], "print") == 0) {
        print_all(stdout);
        return 0;
    }
    FILE *golden = fopen(argc > 1 ? argv[1] : "", "r"), *out = fmemopen(got, sizeof(got), "w");
    if (golden == NULL || out == NULL)
        return 1;
    want[fread(want, 1, sizeof(want) - 1, golden)] = '\0';
    fclose(golden);
    print_all(out);
    fclose(out);
    bool same = strcmp(want, got) == 0;
    printf("1..1\n%sok 1 - printed_schedules_are_those_of_the_golden_text\n", same ? "" : "not ");
    return !same;
}
