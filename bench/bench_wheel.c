/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a timer of dpdk/cc/wheel.h costs. usage: bench_wheel
 *
 * Prints ns for each of: putting a timer off, as each answer does with a timeout; arming one for an
 * earlier time, which moves it; arming and cancelling; arming and firing, as for a packet that is
 * spaced; a poll with nothing due; and how long may be slept. With 64 and 16,384 timers.
 */
#include "core/clock.h"
#include "core/rng.h"
#include "dpdk/cc/wheel.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 2000000u

static unsigned fired;

static void fire(struct sl_dp_timer *timer, uint64_t now_ns)
{
    fired++;
}

static struct sl_dp_wheel wheel;
static struct sl_dp_timer *timers;
static uint64_t *chance; /* drawn before, as it would cost more than the timer */
static unsigned count;

static struct sl_dp_timer *any(unsigned i)
{
    return &timers[chance[i & 0xffff] & (count - 1)];
}

static void put_off(unsigned i)
{
    sl_dp_wheel_arm(&wheel, any(i), UINT64_C(20000000) + i);
}

static void draw_near(unsigned i)
{
    sl_dp_wheel_arm(&wheel, any(i), UINT64_C(20000000) * 1000 - i * UINT64_C(5000));
}

static void cancel(unsigned i)
{
    sl_dp_wheel_arm(&wheel, any(i), UINT64_C(20000000) + (chance[i & 0xffff] >> 40));
    sl_dp_wheel_cancel(&wheel, any(i));
}

static void space(unsigned i)
{
    sl_dp_wheel_arm(&wheel, any(i), i * UINT64_C(700) + 3000);
    sl_dp_wheel_advance(&wheel, i * UINT64_C(700));
}

static void poll(unsigned i)
{
    sl_dp_wheel_advance(&wheel, i);
}

static void next(unsigned i)
{
    fired += sl_dp_wheel_next(&wheel) == i;
}

static const struct {
    const char *name;
    void (*run)(unsigned i);
    bool is_filled; /* all timers are armed before */
} parts[] = {{"put off", put_off, true},
             {"draw near", draw_near, true},
             {"arm and cancel", cancel, false},
             {"arm and fire", space, false},
             {"poll", poll, true},
             {"next", next, true}};

static double measure(size_t part)
{
    double best = 1e9;

    for (unsigned again = 0; again < 5; again++) {
        sl_dp_wheel_init(&wheel, 0);
        for (unsigned i = 0; i < count; i++)
            timers[i] = (struct sl_dp_timer){.fire = fire};
        for (unsigned i = 0; i < count && parts[part].is_filled; i++)
            sl_dp_wheel_arm(&wheel, &timers[i], UINT64_C(20000000) * 1000 + i * 997);
        uint64_t start_ns = sl_now(&sl_clock_monotonic);
        for (unsigned i = 0; i < ROUNDS; i++)
            parts[part].run(i);
        double ns = (double)(sl_now(&sl_clock_monotonic) - start_ns) / ROUNDS;
        best = ns < best ? ns : best;
    }
    return best;
}

int main(void)
{
    struct sl_rng rng;

    timers = calloc(16384, sizeof(*timers));
    chance = calloc(65536, sizeof(*chance));
    if (timers == NULL || chance == NULL)
        return 1;
    sl_rng_init(&rng, 1);
    for (unsigned i = 0; i < 65536; i++)
        chance[i] = sl_rng_u64(&rng);
    printf("%-16s %10s %10s  ns, best of 5\n", "timers", "64", "16384");
    for (size_t part = 0; part < sizeof(parts) / sizeof(parts[0]); part++) {
        double ns[2];
        for (unsigned i = 0; i < 2; i++) {
            count = i == 0 ? 64 : 16384;
            ns[i] = measure(part);
        }
        printf("%-16s %10.1f %10.1f\n", parts[part].name, ns[0], ns[1]);
    }
    free(timers);
    free(chance);
    return fired == UINT32_MAX;
}
