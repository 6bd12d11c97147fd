/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/diagnosis/comm_lasting.h"
#include "core/err.h"
#include "monitor/diagnosis/verdict_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAWN_S 3600.0

int sl_comm_lasting_look(struct sl_comm_lasting *lasting, const struct sl_job *job, int64_t now_ns,
                         int64_t apart_ns, struct sl_comm_options *options)
{
    struct sl_comm_options lower = *options;
    struct sl_verdicts verdicts = {.list = NULL};
    char *names;
    int err;

    lower.window_s = DRAWN_S;
    err = sl_comm_find(job, &lower, &verdicts);
    names = err == 0 ? sl_verdicts_names(job, &verdicts) : NULL;
    sl_verdicts_free(&verdicts);
    if (names == NULL)
        return sl_fail(-ENOMEM, "no memory for verdicts");
    if (lasting->names == NULL || strcmp(lasting->names, names) != 0)
        lasting->since_ns = now_ns;
    free(lasting->names);
    lasting->names = names;
    if (names[0] != '\0' && now_ns - lasting->since_ns >= apart_ns)
        *options = lower;
    return 0;
}

void sl_comm_lasting_free(struct sl_comm_lasting *lasting)
{
    free(lasting->names);
    *lasting = (struct sl_comm_lasting){.names = NULL};
}
