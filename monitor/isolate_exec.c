/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of the site's own: COMMAND... out|back NODE KEY, and the rest in its environment. It
 * takes a node out that is out already, and ends with 0: the same key may come again.
 */
#include "monitor/isolate_plug.h"
#include "monitor/child.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 16
#define VARIABLES 10
#define ROOM (SL_MON_TEXT + 64)
#define ENVIRONMENT_MAX 1024
#define LEFT_ALONE 77 /* it is not this agent's to take out or bring back */

extern char **environ;

static int check(const struct sl_mon_config *config)
{
    return config->isolate_command[strspn(config->isolate_command, " ")] != '\0'
               ? 0
               : sl_fail(-EINVAL, "[isolate] plug = exec needs a command");
}

/* Words between blanks: there is no shell to mistake a text for anything else. */
static unsigned split(char *text, const char **out, unsigned most)
{
    unsigned count = 0;
    char *save = NULL;

    for (char *word = strtok_r(text, " \t", &save); word != NULL && count < most;
         word = strtok_r(NULL, " \t", &save))
        out[count++] = word;
    return count;
}

static void variables(const struct sl_isolate_order *order, char (*out)[ROOM])
{
    const struct sl_mon_action *action = &order->action;

    snprintf(out[0], ROOM, "SLUICED_ACTION=%s", action->kind);
    snprintf(out[1], ROOM, "SLUICED_ACTION_KEY=%s", action->key);
    snprintf(out[2], ROOM, "SLUICED_NODE=%s", order->node);
    snprintf(out[3], ROOM, "SLUICED_VERDICT=%" PRIu64, action->verdict);
    snprintf(out[4], ROOM, "SLUICED_CLASS=%s", action->condition);
    snprintf(out[5], ROOM, "SLUICED_CHECK=%s", action->check);
    snprintf(out[6], ROOM, "SLUICED_KIND=%s", action->subject_kind);
    snprintf(out[7], ROOM, "SLUICED_SUBJECT=%s", action->subject);
    snprintf(out[8], ROOM, "SLUICED_TEXT=%s", action->text);
    snprintf(out[9], ROOM, "SLUICED_ATTEMPT=%u", action->attempts);
}

static void judge(const char *program, const struct sl_mon_child_output *output,
                  struct sl_isolate_answer *out)
{
    const char *colon = output->error[0] != '\0' ? ": " : "";

    out->result = output->status == 0            ? SL_ISOLATE_IS_DONE
                  : output->status == LEFT_ALONE ? SL_ISOLATE_IS_LEFT_ALONE
                                                 : SL_ISOLATE_FAILED;
    if (output->status > 128)
        snprintf(out->why, sizeof(out->why), "%s was ended by signal %d%s%s", program,
                 output->status - 128, colon, output->error);
    else
        snprintf(out->why, sizeof(out->why), "%s ended with status %d%s%s", program, output->status,
                 colon, output->error);
}

static void act(const struct sl_isolate_order *order, struct sl_isolate_answer *out)
{
    const char *argv[WORDS + 4], *environment[ENVIRONMENT_MAX + VARIABLES + 1];
    char command[SL_MON_PATH], own[VARIABLES][ROOM];
    struct sl_mon_child_output output;
    unsigned count = 0, words;
    int err;

    snprintf(command, sizeof(command), "%s", order->config->isolate_command);
    words = split(command, argv, WORDS);
    argv[words++] = order->action.kind;
    argv[words++] = order->node;
    argv[words++] = order->action.key;
    argv[words] = NULL;
    variables(order, own);
    for (unsigned i = 0; i < VARIABLES; i++)
        environment[count++] = own[i];
    for (char **at = environ; at != NULL && *at != NULL && count < ENVIRONMENT_MAX; at++)
        if (strncmp(*at, "SLUICED_", 8) != 0 && strncmp(*at, "NOTIFY_SOCKET=", 14) != 0)
            environment[count++] = *at;
    environment[count] = NULL;
    err = sl_mon_child_run(argv, environment, order->deadline_ns, &output);
    if (err != 0) {
        sl_isolate_failed(err, out);
        return;
    }
    judge(argv[0], &output, out);
    free(output.text);
}

const struct sl_isolate_plug sl_isolate_exec = {.name = "exec", .check = check, .act = act};
