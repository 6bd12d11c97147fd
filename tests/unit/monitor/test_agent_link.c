/* SPDX-License-Identifier: Apache-2.0 */
/* The agent and a network interface whose speed the test sets: a TAP, in a network of its own. */
#include "tests/unit/monitor/bed.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define NETIF "eth7"
#define SPEED "sluice_port_speed_bytes_per_second{device=\"" NETIF "\",port=\"\"}"

static int tap = -1, control = -1;

static bool make_tap(void)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};

    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0)
        return false;
    strcpy(request.ifr_name, NETIF);
    tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (tap < 0 || control < 0 || ioctl(tap, TUNSETIFF, &request) != 0)
        return false;
    request.ifr_flags = IFF_UP;
    return ioctl(control, SIOCSIFFLAGS, &request) == 0;
}

static void set_speed(unsigned megabits)
{
    uint32_t words[sizeof(struct ethtool_link_settings) / 4 + 3 * 127] = {0};
    struct ethtool_link_settings *asked = (struct ethtool_link_settings *)(void *)words;
    struct ifreq request = {.ifr_data = (void *)words};

    strcpy(request.ifr_name, NETIF);
    asked->cmd = ETHTOOL_GLINKSETTINGS;
    assert_int_equal(ioctl(control, SIOCETHTOOL, &request), 0);
    assert_true(asked->link_mode_masks_nwords < 0);
    asked->link_mode_masks_nwords = (int8_t)-asked->link_mode_masks_nwords;
    asked->cmd = ETHTOOL_GLINKSETTINGS;
    assert_int_equal(ioctl(control, SIOCETHTOOL, &request), 0);
    asked->speed = megabits;
    asked->cmd = ETHTOOL_SLINKSETTINGS;
    assert_int_equal(ioctl(control, SIOCETHTOOL, &request), 0);
}

/* The kernel's answers come through a thread: the machine's time passes, too. */
static void wait_a_second(void)
{
    bed_second();
    usleep(5000);
}

static void wait_for_metric(const char *line)
{
    for (unsigned i = 0; i < 2000 && !bed_has_metric(line); i++)
        wait_a_second();
    bed_expect_metric(line, true);
}

static void an_interface_that_becomes_slower_is_found(void **state)
{
    static const char frame[60] = {0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};

    (void)state;
    if (!make_tap()) {
        print_message("no TAP in a network of its own can be had here: it needs root and "
                      "/dev/net/tun; skipped\n");
        skip();
    }
    set_speed(400000);
    bed.config.link = SL_MON_ON;
    bed.config.link_ignore[0] = '\0';
    bed_restart();
    wait_for_metric(SPEED " 50000000000\n");
    assert_int_equal(write(tap, frame, sizeof(frame)), sizeof(frame));
    wait_for_metric("sluice_port_receive_bytes_total{device=\"" NETIF "\",port=\"\"} 60\n");
    assert_int_equal(bed_state(SL_MON_CHECK_PORT_SPEED, NETIF), SL_MON_OK);
    set_speed(100000);
    wait_for_metric(SPEED " 12500000000\n");
    for (unsigned i = 0; i < 2000 && bed_state(SL_MON_CHECK_PORT_SPEED, NETIF) != SL_MON_BAD; i++)
        wait_a_second();
    assert_int_equal(bed_state(SL_MON_CHECK_PORT_SPEED, NETIF), SL_MON_BAD);
    close(tap);
    close(control);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, bed_begin, bed_end)
    const struct CMUnitTest tests[] = {CASE(an_interface_that_becomes_slower_is_found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
