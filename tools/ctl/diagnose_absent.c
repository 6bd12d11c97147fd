/* SPDX-License-Identifier: Apache-2.0 */
/* A build without json-c or zlib cannot read recorded files. */
#include "tools/ctl/diagnose.h"
#include "tools/ctl/command.h"
#include "tools/ctl/matrix.h"
#include "tools/ctl/simulate.h"

#include <stdio.h>

const char sc_diagnose_usage[] = "";
const char sc_simulate_usage[] = "";
const char sc_simulate_help[] = "";
const char sc_matrix_usage[] = "";
const char *const sc_diagnose_absent =
    "this sluicectl was built without json-c or zlib, which diagnose and matrix need";

int sc_diagnose(int count, char **words)
{
    (void)count;
    (void)words;
    fprintf(stderr, "sluicectl: %s\n", sc_diagnose_absent);
    return SC_FAILED;
}

int sc_matrix(int count, char **words)
{
    return sc_diagnose(count, words);
}

int sc_simulate(int count, char **words)
{
    return sc_diagnose(count, words);
}
