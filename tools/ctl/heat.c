/* SPDX-License-Identifier: Apache-2.0 */
/* Heat maps: one row a sender, one column a receiver. */
#include "tools/ctl/heat.h"

#define SIDE 640 /* of the SVG's map, in its units */
#define LEFT 60  /* room for the numbers of ranks */
#define TOP 50
#define LEGEND 90

static const struct {
    float below; /* ratio */
    char text;
    const char *color, *what;
} steps[] = {
    {1.1f, '.', "#e8eef4", "up to 1.1 times"},
    {1.25f, '-', "#fde8a9", "1.1 to 1.25"},
    {1.5f, '+', "#fbc15e", "1.25 to 1.5"},
    {2, 'o', "#f2873c", "1.5 to 2"},
    {3, 'O', "#d7402b", "2 to 3"},
    {1e30f, '@', "#7f0f1f", "3 and more"},
};

#define STEPS (sizeof(steps) / sizeof(steps[0]))

static unsigned step_of(float ratio)
{
    unsigned i = 0;

    while (i + 1 < STEPS && ratio >= steps[i].below)
        i++;
    return i;
}

void sc_heat_text(const struct sc_heat *heat, FILE *out)
{
    fprintf(out, "rows send, columns receive; %u rank%s a character\n", heat->ranks_each,
            heat->ranks_each == 1 ? "" : "s");
    for (uint32_t row = 0; row < heat->size; row++) {
        fprintf(out, "%7u ", row * heat->ranks_each);
        for (uint32_t column = 0; column < heat->size; column++) {
            float ratio = heat->ratio[(size_t)row * heat->size + column];

            fputc(ratio > 0 ? steps[step_of(ratio)].text : ' ', out);
        }
        fputc('\n', out);
    }
    fputs("to what messages of their size take elsewhere:", out);
    for (unsigned i = 0; i < STEPS; i++)
        fprintf(out, "%s %c %s", i > 0 ? "," : "", steps[i].text, steps[i].what);
    fputc('\n', out);
}

static void print_numbers(const struct sc_heat *heat, double side, FILE *out)
{
    uint32_t each = heat->size / 8 > 0 ? heat->size / 8 : 1;

    for (uint32_t i = 0; i < heat->size; i += each) {
        double middle = (i + 0.5) * side;

        fprintf(out,
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%u</text>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
                LEFT - 6, TOP + middle + 4, i * heat->ranks_each, LEFT + middle, TOP - 6,
                i * heat->ranks_each);
    }
}

static void print_legend(FILE *out)
{
    int y = TOP + SIDE + 24;

    for (unsigned i = 0; i < STEPS; i++) {
        int x = LEFT + (int)(i % 3) * 220, line = y + (int)(i / 3) * 24;

        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"%d\">%s</text>\n",
                x, line, steps[i].color, x + 20, line + 12, steps[i].what);
    }
}

/* Neighbours of one color are one rectangle: a healthy row of a thousand is a line of text. */
static void print_row(const struct sc_heat *heat, uint32_t row, double side, FILE *out)
{
    const float *ratio = heat->ratio + (size_t)row * heat->size;

    for (uint32_t from = 0, to; from < heat->size; from = to) {
        unsigned step = step_of(ratio[from]);

        to = from + 1;
        if (!(ratio[from] > 0))
            continue;
        while (to < heat->size && ratio[to] > 0 && step_of(ratio[to]) == step && step == 0)
            to++;
        fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\">",
                LEFT + from * side, TOP + row * side, (to - from) * side, side, steps[step].color);
        if (step > 0)
            fprintf(out, "<title>rank %u to rank %u: %.2f times</title>", row * heat->ranks_each,
                    from * heat->ranks_each, ratio[from]);
        fputs("</rect>\n", out);
    }
}

void sc_heat_svg(const struct sc_heat *heat, FILE *out)
{
    double side = heat->size > 0 ? (double)SIDE / heat->size : SIDE;

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<title>What messages from rank to rank took, to those of their size</title>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
            "<text x=\"%d\" y=\"18\">Rows send, columns receive; %u ranks, %u a field</text>\n",
            LEFT + SIDE + 20, TOP + SIDE + LEGEND, LEFT, heat->rank_count, heat->ranks_each);
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f7f7f7\" "
            "stroke=\"#cccccc\"/>\n",
            LEFT, TOP, SIDE, SIDE);
    print_numbers(heat, side, out);
    for (uint32_t row = 0; row < heat->size; row++)
        print_row(heat, row, side, out);
    print_legend(out);
    fputs("</svg>\n", out);
}
