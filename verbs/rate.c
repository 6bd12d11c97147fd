/* SPDX-License-Identifier: Apache-2.0 */
/* Speeds of ports, and their codes. */
#include "verbs/rate.h"
#include "verbs/ibv_dl.h"

#include "core/err.h"

/* In ascending order, as the kernel counts them: 14.0625 Gbit/s to a lane of FDR. */
static const struct {
    uint8_t rate; /* enum ibv_rate */
    uint32_t mbit;
} rates[] = {{IBV_RATE_2_5_GBPS, 2500},   {IBV_RATE_5_GBPS, 5000},      {IBV_RATE_10_GBPS, 10000},
             {IBV_RATE_14_GBPS, 14062},   {IBV_RATE_20_GBPS, 20000},    {IBV_RATE_25_GBPS, 25000},
             {IBV_RATE_28_GBPS, 28125},   {IBV_RATE_30_GBPS, 30000},    {IBV_RATE_40_GBPS, 40000},
             {IBV_RATE_50_GBPS, 50000},   {IBV_RATE_56_GBPS, 56250},    {IBV_RATE_60_GBPS, 60000},
             {IBV_RATE_80_GBPS, 80000},   {IBV_RATE_100_GBPS, 100000},  {IBV_RATE_112_GBPS, 112500},
             {IBV_RATE_120_GBPS, 120000}, {IBV_RATE_168_GBPS, 168750},  {IBV_RATE_200_GBPS, 200000},
             {IBV_RATE_300_GBPS, 300000}, {IBV_RATE_400_GBPS, 400000},  {IBV_RATE_600_GBPS, 600000},
             {IBV_RATE_800_GBPS, 800000}, {IBV_RATE_1200_GBPS, 1200000}};

uint64_t sl_verbs_rate_speed(uint8_t rate)
{
    for (size_t i = 0; i < SL_ARRAY_LEN(rates); i++)
        if (rates[i].rate == rate)
            return rates[i].mbit * UINT64_C(125000);
    return 0;
}

uint8_t sl_verbs_rate_of(uint64_t speed)
{
    for (size_t i = 0; speed != 0 && i < SL_ARRAY_LEN(rates); i++)
        if (speed <= rates[i].mbit * UINT64_C(125000))
            return rates[i].rate;
    return IBV_RATE_MAX;
}

uint8_t sl_verbs_rate_towards(uint64_t speed, uint8_t peer)
{
    return sl_verbs_rate_speed(peer) < speed ? peer : IBV_RATE_MAX;
}
