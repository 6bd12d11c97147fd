/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of sluiced --cluster; the rest is monitor/cluster/. */
#include "tools/sluiced/cluster.h"

#include "core/err.h"
#include "lib/api.h"
#include "monitor/cluster/instance.h"
#include "tools/sluiced/notify.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define FDS_MAX 8

static void say(const char *sentence)
{
    fprintf(stderr, "sluiced: %s\n", sentence);
}

int sld_cluster_check(const struct sl_mon_config *config)
{
    return sl_instance_check(config);
}

/* False: it is to end. */
static bool on_signal(int signals, bool *again)
{
    struct signalfd_siginfo info;

    if (read(signals, &info, sizeof(info)) != sizeof(info))
        return true;
    *again = info.ssi_signo == SIGHUP;
    return false;
}

static void tell_systemd(const struct sl_instance *instance, time_t *told)
{
    time_t now = time(NULL);
    char why[256], line[300];

    if (now == *told)
        return;
    *told = now;
    /* An instance that hears nothing tells of it, which one that was begun anew would not. */
    (void)sl_instance_is_fresh(instance, why, sizeof(why));
    snprintf(line, sizeof(line), "WATCHDOG=1\nSTATUS=%s", why);
    sld_notify(line);
}

int sld_cluster_run(const struct sl_mon_config *config, int signals, bool *again)
{
    const struct sl_instance_options options = {
        .config = config, .version = sluice_version_string(), .say = say};
    struct sl_instance *instance;
    time_t told = 0;
    bool goes_on = true;

    *again = false;
    if (sl_instance_open(&options, &instance) != 0) {
        say(sluice_last_error());
        return 1;
    }
    fprintf(stderr, "sluiced: the cluster's page is at http://%s/\n", config->cluster_http);
    sld_notify("READY=1");
    while (goes_on) {
        struct pollfd fds[FDS_MAX] = {{.fd = signals, .events = POLLIN}};
        int list[FDS_MAX - 1];
        unsigned count = sl_instance_fds(instance, list, FDS_MAX - 1);

        for (unsigned i = 0; i < count; i++)
            fds[i + 1] = (struct pollfd){.fd = list[i], .events = POLLIN};
        if (poll(fds, count + 1, sl_instance_wait_ms(instance)) > 0 && fds[0].revents != 0)
            goes_on = on_signal(signals, again);
        sl_instance_turn(instance);
        tell_systemd(instance, &told);
    }
    sl_instance_close(instance);
    return 0;
}
