/* SPDX-License-Identifier: Apache-2.0 */
/* Learns from a reduction function's results which type and operator it is for. */
#include "tools/preload/gloo_reduce.hh"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace sl_gloo
{

namespace
{

using plain_fn = void (*)(void *, const void *, const void *, size_t);

constexpr size_t TRIALS = 512; /* pairs of elements, of all magnitudes */

/* IEEE binary16, as far as comparing needs it: kept as bits, computed as float. */
struct half {
    uint16_t bits;
};
struct bfloat {
    uint16_t bits;
};

float widen(half h)
{
    int exponent = h.bits >> 10 & 31, mantissa = h.bits & 1023;
    float value = exponent == 0    ? std::ldexp(static_cast<float>(mantissa), -24)
                  : exponent == 31 ? (mantissa != 0 ? NAN : INFINITY)
                                   : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);

    return (h.bits & 0x8000) != 0 ? -value : value;
}

float widen(bfloat b)
{
    uint32_t bits = static_cast<uint32_t>(b.bits) << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* value is what got must be once rounded: the nearest, whichever way a tie goes is the
 * function's. */
template <class T>
bool is_rounded(T got, double value, double step_up, double step_down)
{
    double here = static_cast<double>(widen(got));

    if (std::isnan(value))
        return std::isnan(here);
    if (here == value)
        return true;
    return here > value ? here - value <= step_up / 2 : value - here <= step_down / 2;
}

template <class T>
bool is_nearest(T got, double value)
{
    double here = static_cast<double>(widen(got));
    T above = got, below = got;

    if (std::isnan(value) || std::isnan(here))
        return std::isnan(value) && std::isnan(here);
    if (std::isinf(here) ||
        (got.bits & 0x7fff) == 0) /* overflow and underflow: the sign must fit */
        return here == value || std::signbit(here) == std::signbit(value) ||
               std::fabs(value) < 1e-7;
    above.bits++;
    below.bits--;
    double step = std::max(std::fabs(static_cast<double>(widen(above)) - here),
                           std::fabs(here - static_cast<double>(widen(below))));

    return is_rounded(got, value, step, step);
}

template <class T>
bool matches(enum sluice_op op, T a, T b, T got)
{
    switch (op) {
    case SLUICE_SUM:
        if constexpr (std::is_floating_point<T>::value)
            return got == static_cast<T>(a + b) || std::isnan(a + b);
        else
            return got == static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                                         static_cast<std::make_unsigned_t<T>>(b));
    case SLUICE_PROD:
        if constexpr (std::is_floating_point<T>::value)
            return got == static_cast<T>(a * b) || std::isnan(a * b);
        else
            return got == static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case SLUICE_MAX: return got == std::max(a, b);
    default: return got == std::min(a, b);
    }
}

template <class T>
bool matches_short(enum sluice_op op, T a, T b, T got)
{
    double x = static_cast<double>(widen(a)), y = static_cast<double>(widen(b));
    double is = static_cast<double>(widen(got));

    switch (op) {
    case SLUICE_SUM: /* both are exact in double; the function may round by way of a float */
        return is_nearest(got, static_cast<double>(static_cast<float>(x + y)));
    case SLUICE_PROD: return is_nearest(got, static_cast<double>(static_cast<float>(x * y)));
    case SLUICE_MAX: return is == std::max(x, y);
    default: return is == std::min(x, y);
    }
}
template <>
bool matches(enum sluice_op op, half a, half b, half got)
{
    return matches_short(op, a, b, got);
}
template <>
bool matches(enum sluice_op op, bfloat a, bfloat b, bfloat got)
{
    return matches_short(op, a, b, got);
}

template <class T>
bool usable(T value)
{
    if constexpr (std::is_floating_point<T>::value)
        return std::isfinite(value) && value != 0;
    else
        return true;
}
template <>
bool usable(half value)
{
    return std::isfinite(widen(value)) && (value.bits & 0x7fff) != 0;
}
template <>
bool usable(bfloat value)
{
    return std::isfinite(widen(value)) && (value.bits & 0x7fff) != 0;
}

uint64_t next_random(uint64_t &state) /* splitmix64 */
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A number of T that has a sum with others: half of them of like magnitude, the others any bits. */
template <class T>
T draw(uint64_t &state)
{
    T value;

    do {
        uint64_t bits = next_random(state);

        memcpy(&value, &bits, sizeof(value));
        if constexpr (std::is_floating_point<T>::value) {
            if ((bits >> 32 & 1) != 0)
                value = static_cast<T>(static_cast<int64_t>(bits) >> 40) / 1024;
        } else if constexpr (std::is_same<T, half>::value) {
            if ((bits >> 32 & 1) != 0)
                value.bits = static_cast<uint16_t>((bits & 0x83ff) | 0x3c00);
        } else if constexpr (std::is_same<T, bfloat>::value) {
            if ((bits >> 32 & 1) != 0)
                value.bits = static_cast<uint16_t>((bits & 0x807f) | 0x3f80);
        }
    } while (!usable(value));
    return value;
}

/* fn is one of the operators for T. */
template <class T>
bool find_op(plain_fn fn, enum sluice_dtype dtype, manner &out)
{
    T a[TRIALS], b[TRIALS], got[TRIALS];
    uint64_t state = 1;

    for (size_t i = 0; i < TRIALS; i++) {
        a[i] = draw<T>(state);
        b[i] = draw<T>(state);
    }
    memset(got, 0, sizeof(got));
    fn(got, a, b, TRIALS);
    for (int op = SLUICE_SUM; op <= SLUICE_MIN; op++) {
        size_t i = 0;

        while (i < TRIALS && matches(static_cast<enum sluice_op>(op), a[i], b[i], got[i]))
            i++;
        if (i == TRIALS) {
            out = {0, static_cast<uint8_t>(dtype), static_cast<uint8_t>(op)};
            return true;
        }
    }
    return false;
}

bool find_kind(plain_fn fn, size_t element_size, manner &out)
{
    switch (element_size) {
    case 1: return find_op<int8_t>(fn, SLUICE_I8, out) || find_op<uint8_t>(fn, SLUICE_U8, out);
    case 2: return find_op<half>(fn, SLUICE_F16, out) || find_op<bfloat>(fn, SLUICE_BF16, out);
    case 4:
        return find_op<float>(fn, SLUICE_F32, out) || find_op<int32_t>(fn, SLUICE_I32, out) ||
               find_op<uint32_t>(fn, SLUICE_U32, out);
    case 8:
        return find_op<double>(fn, SLUICE_F64, out) || find_op<int64_t>(fn, SLUICE_I64, out) ||
               find_op<uint64_t>(fn, SLUICE_U64, out);
    default: return false;
    }
}

/* What is known of functions: there are a few dozen in a program. */
struct knowledge {
    std::mutex lock;
    std::map<std::pair<plain_fn, size_t>, manner> of;
};

} // namespace

/* The engine's result has the same bits as gloo's: additions are exact, or there is but one. */
static bool same_bits(const manner &how, int ranks)
{
    if (how.dtype <= SLUICE_U64)
        return true;
    return ranks == 2 && (how.dtype == SLUICE_F32 || how.dtype == SLUICE_F64) &&
           (how.op == SLUICE_SUM || how.op == SLUICE_PROD);
}

manner manner_of(const reduction &r, int ranks)
{
    static knowledge *known = new knowledge; /* lives until the process ends */
    const plain_fn *fn = r.reduce->target<plain_fn>();
    manner found = {1, 0, 0};

    if (fn == nullptr || *fn == nullptr)
        return found;
    {
        std::lock_guard<std::mutex> guard(known->lock);
        auto at = known->of.find({*fn, r.element_size});

        if (at != known->of.end())
            found = at->second;
        else if (find_kind(*fn, r.element_size, found))
            known->of[{*fn, r.element_size}] = found;
        else
            known->of[{*fn, r.element_size}] = found = {1, 0, 0};
    }
    if (sl_gloo_here.exact && found.chain == 0 && !same_bits(found, ranks))
        found.chain = 1;
    return found;
}

} // namespace sl_gloo
