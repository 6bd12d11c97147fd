/* SPDX-License-Identifier: Apache-2.0 */
/* The path table of a planner: what is accepted keeps within its limits and, written out again,
 * gives the same rules; what is refused leaves nothing; no byte beyond the text is read. */
#include "core/err.h"
#include "core/path_table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct sl_path_rule *a, const struct sl_path_rule *b)
{
    sl_assert(a->job_len == b->job_len && a->rank == b->rank && a->peer == b->peer &&
              a->path == b->path && a->label == b->label && a->weight == b->weight &&
              a->avoid == b->avoid);
    sl_assert(a->job_len == 0 || memcmp(a->job, b->job, a->job_len) == 0);
    sl_assert(a->port_len == b->port_len &&
              (a->port_len == 0 || memcmp(a->port, b->port, a->port_len) == 0));
}

static void check_again(const struct sl_path_table *table)
{
    struct sl_path_table again;
    char *text;
    size_t len;

    if (sl_path_table_print(table, &text, &len) != 0)
        return; /* leading zeros left out, it can only be shorter, but memory may lack */
    sl_assert(sl_path_table_parse(text, len, &again) == 0);
    sl_assert(again.count == table->count && again.until_s == table->until_s);
    for (size_t i = 0; i < table->count; i++)
        check_same(&table->rules[i], &again.rules[i]);
    sl_path_table_fini(&again);
    /* Cut anywhere, it is none. */
    for (size_t cut = 0; cut < len && len < 512; cut++)
        sl_assert(sl_path_table_parse(text, cut, &again) == -EBADMSG);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_path_table table = {.count = 77};
    char *text = malloc(size > 0 ? size : 1); /* to the byte: the address sanitizer sees more */

    sl_assert(text != NULL);
    memcpy(text, data, size);
    if (sl_path_table_parse(text, size, &table) != 0) {
        sl_assert(table.count == 77 && table.rules == NULL);
        free(text);
        return 0;
    }
    sl_assert(table.count <= SL_PATH_TABLE_RULES_MAX);
    for (size_t i = 0; i < table.count; i++)
        sl_assert(sl_path_rule_check(&table.rules[i]) == 0);
    for (int path = 0; path < 4; path++) {
        struct sl_path_setting is =
            sl_path_rules_apply(table.rules, table.count, 1, path, path == 1 ? "rxe0:1" : NULL);

        sl_assert(is.weight >= 1 && is.weight <= SL_PATH_TABLE_WEIGHT_MAX &&
                  is.label <= SL_PATH_TABLE_LABEL_MAX);
    }
    check_again(&table);
    sl_path_table_fini(&table);
    free(text);
    return 0;
}
