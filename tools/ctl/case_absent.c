/* SPDX-License-Identifier: Apache-2.0 */
/* A build without json-c or zlib has no cases. */
#include "tools/ctl/case.h"
#include "tools/ctl/command.h"
#include "tools/ctl/diagnose.h"

#include <stdio.h>
#include <string.h>

const char sc_case_usage[] = "";
const char sc_case_help[] = "";

bool sc_case(int count, char **words, int *status)
{
    bool is_mine =
        count > 0 && (strcmp(words[0], "explain") == 0 || strcmp(words[0], "graph") == 0);

    if (is_mine) {
        fprintf(stderr, "sluicectl: %s\n", sc_diagnose_absent);
        *status = SC_FAILED;
    }
    return is_mine;
}
