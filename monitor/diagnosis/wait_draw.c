/* SPDX-License-Identifier: Apache-2.0 */
/* The wait-for graph as DOT, and as SVG that needs no other program. */
#include "monitor/diagnosis/wait_graph.h"

#include <stdlib.h>
#include <string.h>

#define BOX_W 340
#define BOX_H 58
#define GAP_X 110
#define GAP_Y 22
#define MARGIN 24
#define TOP 64      /* title and legend */
#define TEXT_MAX 38 /* letters in a box; the rest is in its tooltip */

static const char *const roles[] = {[SL_WAIT_ACCUSED] = "accused",
                                    [SL_WAIT_WAITS] = "waits",
                                    [SL_WAIT_ASTRAY] = "astray",
                                    [SL_WAIT_FREE] = "free"};

/* ---- DOT ---- */

static void dot_text(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    }
}

void sl_wait_graph_dot(const struct sl_wait_graph *graph, FILE *out)
{
    static const char *const styles[] = {
        [SL_WAIT_ACCUSED] = "style=\"filled,bold\" fillcolor=\"#f9d0cc\" color=\"#b3261e\"",
        [SL_WAIT_WAITS] = "style=filled fillcolor=\"#e3ecf8\" color=\"#3b6ea5\"",
        [SL_WAIT_ASTRAY] = "style=\"filled,dashed\" fillcolor=\"#fdf1d0\" color=\"#8a6d00\"",
        [SL_WAIT_FREE] = "style=\"filled,dotted\" fillcolor=\"#f2f2f2\" color=\"#777777\""};

    fputs("digraph waits {\n  rankdir=LR;\n  node [shape=box fontname=\"sans-serif\"];\n", out);
    for (uint32_t i = 0; i < graph->box_count; i++) {
        fprintf(out, "  b%u [%s label=\"", i, styles[graph->boxes[i].role]);
        dot_text(graph->boxes[i].ranks, out);
        fputs("\\n", out);
        dot_text(graph->boxes[i].what, out);
        fputs("\"];\n", out);
    }
    for (uint32_t i = 0; i < graph->arrow_count; i++) {
        const struct sl_wait_arrow *it = &graph->arrows[i];

        fprintf(out, "  b%u -> b%u [label=\"%u\"];\n", it->from, it->to, it->count);
    }
    fputs("}\n", out);
}

/* ---- layout ---- */

struct spot {
    double x, y, wish; /* wish: where in its column it would have the straightest arrows */
    uint32_t box, column, row;
};

struct layout {
    struct spot *spots; /* by box */
    uint32_t columns;   /* of those that are part of the hang; 0 is the accused ones' */
    double width, height;
};

static int by_wish(const void *a, const void *b)
{
    const struct spot *x = *(struct spot *const *)a, *y = *(struct spot *const *)b;

    if (x->wish < y->wish || x->wish > y->wish)
        return x->wish < y->wish ? -1 : 1;
    return x->box < y->box ? -1 : x->box > y->box;
}

/* Where the arrows of a box go, on average. */
static double wish_of(const struct sl_wait_graph *graph, const struct layout *layout, uint32_t box)
{
    double sum = 0, count = 0;

    for (uint32_t i = 0; i < graph->arrow_count; i++)
        if (graph->arrows[i].from == box && graph->arrows[i].to != box &&
            layout->spots[graph->arrows[i].to].column < layout->spots[box].column) {
            sum += layout->spots[graph->arrows[i].to].row * (double)graph->arrows[i].count;
            count += graph->arrows[i].count;
        }
    return count > 0 ? sum / count : box;
}

static uint32_t place_column(const struct sl_wait_graph *graph, struct layout *layout,
                             uint32_t column, struct spot **order)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < graph->box_count; i++)
        if (layout->spots[i].column == column) {
            layout->spots[i].wish = column == 0 ? i : wish_of(graph, layout, i);
            order[count++] = &layout->spots[i];
        }
    qsort(order, count, sizeof(*order), by_wish);
    for (uint32_t i = 0; i < count; i++)
        order[i]->row = i;
    return count;
}

/* Columns of the hang from the right to the left; what is no part of it in rows below. */
static bool lay_out(const struct sl_wait_graph *graph, struct layout *layout)
{
    struct spot **order = calloc((size_t)graph->box_count + 1, sizeof(struct spot *));
    uint32_t rows = 0, aside = 0, wide;

    layout->spots = calloc((size_t)graph->box_count + 1, sizeof(*layout->spots));
    if (layout->spots == NULL || order == NULL) {
        free(order);
        return false;
    }
    for (uint32_t i = 0; i < graph->box_count; i++) {
        bool is_part = graph->boxes[i].role <= SL_WAIT_WAITS;

        layout->spots[i].box = i;
        layout->spots[i].column = is_part ? graph->boxes[i].depth : UINT32_MAX;
        if (is_part && graph->boxes[i].depth + 1 > layout->columns)
            layout->columns = graph->boxes[i].depth + 1;
    }
    for (uint32_t c = 0; c < layout->columns; c++) {
        uint32_t count = place_column(graph, layout, c, order);

        rows = count > rows ? count : rows;
    }
    wide = layout->columns > 3 ? layout->columns : 3;
    for (uint32_t i = 0; i < graph->box_count; i++) {
        struct spot *it = &layout->spots[i];

        if (it->column != UINT32_MAX) {
            it->x = MARGIN + (double)(layout->columns - 1 - it->column) * (BOX_W + GAP_X);
            it->y = TOP + (double)it->row * (BOX_H + GAP_Y);
            continue;
        }
        it->x = MARGIN + (double)(aside % wide) * (BOX_W + GAP_X);
        it->y = TOP + (double)rows * (BOX_H + GAP_Y) + 2 * GAP_Y +
                (double)(aside / wide) * (BOX_H + GAP_Y);
        aside++;
    }
    layout->width = 2 * MARGIN + (double)wide * (BOX_W + GAP_X) - GAP_X;
    layout->height =
        TOP + MARGIN + (double)rows * (BOX_H + GAP_Y) +
        (aside > 0 ? 2 * GAP_Y + (double)((aside + wide - 1) / wide) * (BOX_H + GAP_Y) : 0);
    free(order);
    return true;
}

/* ---- SVG ---- */

/* How many bytes the letter here has; 0: it is none that XML may have. */
static unsigned letter_len(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    unsigned len = c[0] < 0x80 ? 1 : c[0] >= 0xc2 && c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;

    if (c[0] < ' ' || c[0] == 0x7f || (c[0] >= 0x80 && c[0] < 0xc2) || c[0] > 0xf4)
        return 0;
    for (unsigned i = 1; i < len; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) ||
        (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] > 0x8f) ||
        (c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe))
        return 0;
    return len;
}

/* At most `most` letters, with an ellipsis where there are more. */
static void svg_text(const char *text, size_t most, FILE *out)
{
    size_t letters = 0;

    while (*text != '\0') {
        unsigned len = letter_len(text);

        if (letters++ == most) {
            fputs("…", out);
            return;
        }
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: len > 0 ? fwrite(text, 1, len, out) : fwrite("?", 1, 1, out);
        }
        text += len > 0 ? len : 1;
    }
}

static void svg_box(const struct sl_wait_box *box, const struct spot *spot, FILE *out)
{
    fprintf(out, "<g class=\"%s\"><title>", roles[box->role]);
    svg_text(box->ranks, SIZE_MAX, out);
    fputs(": ", out);
    svg_text(box->what, SIZE_MAX, out);
    fprintf(out,
            "</title><rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"6\"/>"
            "<text class=\"ranks\" x=\"%.0f\" y=\"%.0f\">",
            spot->x, spot->y, BOX_W, BOX_H, spot->x + 12, spot->y + 24);
    svg_text(box->ranks, TEXT_MAX, out);
    fprintf(out, "</text><text class=\"what\" x=\"%.0f\" y=\"%.0f\">", spot->x + 12, spot->y + 44);
    svg_text(box->what, TEXT_MAX, out);
    fputs("</text></g>\n", out);
}

/* From a box's right side to the other one's left side; within a column around the right. */
static void svg_arrow(const struct sl_wait_arrow *arrow, const struct layout *layout, FILE *out)
{
    const struct spot *a = &layout->spots[arrow->from], *b = &layout->spots[arrow->to];
    double x = a->x + BOX_W, y = a->y + BOX_H / 2.0, u = b->x, v = b->y + BOX_H / 2.0;
    double bend = GAP_X / 2.0;

    if (u > x) {
        fprintf(out, "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\"/>", x, y, x + bend, y,
                u - bend, v, u - 3, v);
    } else {
        u = b->x + BOX_W;
        fprintf(out, "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\"/>", x, y - 8, x + 20,
                y - 8, u + 20, v + 8, u + 3, v + 8);
    }
    if (arrow->count > 1)
        fprintf(out, "<text class=\"count\" x=\"%.0f\" y=\"%.0f\">%u</text>", x + 6, y - 6,
                arrow->count);
    fputc('\n', out);
}

static const char style[] =
    "<style>\n"
    "svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#1c1c1c}"
    ".ranks{font-weight:600}.head{font-size:16px;font-weight:600}\n"
    "rect{fill:#e3ecf8;stroke:#3b6ea5;stroke-width:1.2}"
    ".accused rect{fill:#f9d0cc;stroke:#b3261e;stroke-width:2.4}\n"
    ".astray rect{fill:#fdf1d0;stroke:#8a6d00;stroke-dasharray:6 3}"
    ".free rect{fill:#f2f2f2;stroke:#777;stroke-dasharray:2 3}\n"
    "path{fill:none;stroke:#555;stroke-width:1.4;marker-end:url(#tip)}"
    "#tip path{fill:#555;stroke:none;marker-end:none}\n"
    ".count{font-size:11px;fill:#444}.what{font-size:12px}\n"
    "@media (prefers-color-scheme:dark){svg{background:#16181c}text{fill:#e8e8e8}"
    "rect{fill:#22344c;stroke:#7fb0e6}.accused rect{fill:#55211d;stroke:#ff8a80}"
    ".astray rect{fill:#453a15;stroke:#e0c060}.free rect{fill:#2a2a2a;stroke:#999}"
    "path{stroke:#aaa}#tip path{fill:#aaa}.count{fill:#bbb}}\n"
    "</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" "
    "markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n";

void sl_wait_graph_svg(const struct sl_wait_graph *graph, FILE *out)
{
    struct layout layout = {.columns = 0};

    if (!lay_out(graph, &layout))
        return;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>Who waits for whom</title>\n%s",
            layout.width, layout.height, layout.width, layout.height, style);
    fprintf(out,
            "<text class=\"head\" x=\"%d\" y=\"%d\">Who waits for whom: %u ranks</text>"
            "<text x=\"%d\" y=\"%d\">An arrow leads to one that is waited for; the number at it is "
            "how many ranks wait so. Red: accused. Dotted: nothing is pending.</text>\n",
            MARGIN, 28, graph->rank_count, MARGIN, 48);
    for (uint32_t i = 0; i < graph->arrow_count; i++)
        svg_arrow(&graph->arrows[i], &layout, out);
    for (uint32_t i = 0; i < graph->box_count; i++)
        svg_box(&graph->boxes[i], &layout.spots[i], out);
    fputs("</svg>\n", out);
    free(layout.spots);
}
