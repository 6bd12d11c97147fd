/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce and reduce: every type and operator of gloo's, several sizes, forms and functions. */
#include "gloo_program.hh"

#include <gloo/allreduce.h>
#include <gloo/reduce.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace
{

using function = void (*)(void *, const void *, const void *, size_t);
enum op { SUM, PRODUCT, MIN, MAX, OPS };
const char *const op_names[] = {"sum", "product", "min", "max"};

template <class T>
T draw(std::mt19937_64 &random)
{
    if constexpr (std::is_same<T, gloo::float16>::value)
        return gloo::float16(static_cast<double>(random() % 4001) / 1000 - 2);
    else if constexpr (std::is_floating_point<T>::value)
        return static_cast<T>(static_cast<double>(static_cast<int64_t>(random())) / 1e19);
    else
        return static_cast<T>(random());
}

/* What rank gives in case number id: any rank can tell. */
template <class T>
std::vector<T> given(int id, int rank, size_t count)
{
    std::mt19937_64 random(static_cast<uint64_t>(id) * 1000 + static_cast<uint64_t>(rank));
    std::vector<T> values(count);

    for (T &value : values)
        value = draw<T>(random);
    return values;
}

template <class T>
function function_of(op o)
{
    const function all[] = {&gloo::sum<T>, &gloo::product<T>, &gloo::min<T>, &gloo::max<T>};

    return all[o];
}

template <class T>
double number(T value)
{
    if constexpr (std::is_same<T, gloo::float16>::value)
        return static_cast<double>(gloo::cpu_half2float(value));
    else
        return static_cast<double>(value);
}

/* The result is the reference, up to rounding in another order; integers and comparisons to the
 * bit. */
template <class T>
void check(const process &p, const char *what, const std::vector<T> &got,
           const std::vector<T> &want, const std::vector<double> &scale)
{
    for (size_t i = 0; i < got.size(); i++) {
        double unit = std::is_same<T, float>::value    ? 6e-8
                      : std::is_same<T, double>::value ? 1.2e-16
                      : std::is_integral<T>::value     ? 0
                                                       : 5e-4;

        if (memcmp(&got[i], &want[i], sizeof(T)) != 0 &&
            !(std::fabs(number(got[i]) - number(want[i])) <= unit * 4 * p.size * scale[i]))
            wrong(p, std::string(what) + ": element " + std::to_string(i) + " of " +
                         std::to_string(got.size()) + " is " + std::to_string(number(got[i])) +
                         " instead of " + std::to_string(number(want[i])));
    }
}

template <class T>
struct expected {
    std::vector<T> values;
    std::vector<double> scale; /* of rounding */
};

template <class T>
expected<T> expect(const process &p, int id, size_t count, function fn)
{
    expected<T> e = {given<T>(id, 0, count), std::vector<double>(count)};

    for (int rank = 0; rank < p.size; rank++) {
        std::vector<T> more = given<T>(id, rank, count);

        for (size_t i = 0; i < count; i++)
            e.scale[i] += std::fabs(number(more[i])) + 1;
        if (rank != 0)
            fn(e.values.data(), e.values.data(), more.data(), count);
    }
    return e;
}

template <class T>
const char *type_name();
template <>
const char *type_name<int8_t>()
{
    return "i8";
}
template <>
const char *type_name<uint8_t>()
{
    return "u8";
}
template <>
const char *type_name<int32_t>()
{
    return "i32";
}
template <>
const char *type_name<int64_t>()
{
    return "i64";
}
template <>
const char *type_name<uint64_t>()
{
    return "u64";
}
template <>
const char *type_name<gloo::float16>()
{
    return "f16";
}
template <>
const char *type_name<float>()
{
    return "f32";
}
template <>
const char *type_name<double>()
{
    return "f64";
}

int next_id; /* of cases, the same on all ranks */

template <class T>
void run_allreduce(process &p, const context_ptr &context, op o, size_t count, bool in_place)
{
    int id = next_id++;
    std::vector<T> in = given<T>(id, p.rank, count), out(in_place ? in : std::vector<T>(count));
    gloo::AllreduceOptions options(context);
    std::string what = std::string("allreduce ") + type_name<T>() + " " + op_names[o] + " " +
                       std::to_string(count) + (in_place ? " in place" : "");

    if (!in_place)
        options.setInput(in.data(), count);
    options.setOutput(out.data(), count);
    options.setReduceFunction(function_of<T>(o));
    options.setTag(static_cast<uint32_t>(id));
    gloo::allreduce(options);
    expected<T> e = expect<T>(p, id, count, function_of<T>(o));

    check(p, what.c_str(), out, e.values, e.scale);
    fprintf(p.out, "%s %016lx\n", what.c_str(), digest(out.data(), count * sizeof(T)));
}

template <class T>
void run_reduce(process &p, const context_ptr &context, op o, size_t count)
{
    int id = next_id++, root = id % p.size;
    std::vector<T> in = given<T>(id, p.rank, count), out(count);
    gloo::ReduceOptions options(context);
    std::string what =
        std::string("reduce ") + type_name<T>() + " " + op_names[o] + " " + std::to_string(count);

    options.setInput(in.data(), count);
    options.setOutput(out.data(), count);
    options.setRoot(root);
    options.setReduceFunction(function_of<T>(o));
    options.setTag(static_cast<uint32_t>(id));
    gloo::reduce(options);
    if (root != p.rank)
        return;
    expected<T> e = expect<T>(p, id, count, function_of<T>(o));

    check(p, what.c_str(), out, e.values, e.scale);
    fprintf(p.out, "%s %016lx\n", what.c_str(), digest(out.data(), count * sizeof(T)));
}

template <class T>
void run_type(process &p, const context_ptr &context)
{
    for (int o = 0; o < OPS; o++) {
        for (size_t count : {1, 5, 640})
            run_allreduce<T>(p, context, static_cast<op>(o), count, count == 5);
        run_reduce<T>(p, context, static_cast<op>(o), 333);
    }
    run_allreduce<T>(p, context, SUM, 70001, false);
    run_reduce<T>(p, context, SUM, 70001);
}

/* Several inputs and outputs in a process. */
void run_many_buffers(process &p, const context_ptr &context)
{
    constexpr size_t count = 1003;
    int id = next_id++;
    std::vector<float> in[3], out[2];
    std::vector<float *> ins, outs;
    gloo::AllreduceOptions options(context);

    for (int i = 0; i < 3; i++) {
        in[i] = given<float>(id, p.rank * 3 + i, count);
        ins.push_back(in[i].data());
    }
    for (std::vector<float> &o : out) {
        o.resize(count);
        outs.push_back(o.data());
    }
    options.setInputs(ins, count);
    options.setOutputs(outs, count);
    options.setReduceFunction(function(&gloo::sum<float>));
    gloo::allreduce(options);
    if (out[0] != out[1])
        wrong(p, "two outputs of one call differ");
    for (size_t i = 0; i < count; i++) {
        double sum = 0;

        for (int part = 0; part < p.size * 3; part++)
            sum += static_cast<double>(given<float>(id, part, count)[i]);
        if (i % 100 == 0 && std::fabs(sum - static_cast<double>(out[0][i])) > 1e-4)
            wrong(p, "the sum of several inputs is wrong");
    }
    fprintf(p.out, "many %016lx\n", digest(out[0].data(), count * sizeof(float)));
}

/* What only the program itself can do: a bitwise operator, and a function with a state of its
 * own. */
void run_own_functions(process &p, const context_ptr &context)
{
    for (int form = 0; form < 2; form++) {
        for (size_t count : {3, 50000}) {
            std::vector<uint32_t> values(count);
            gloo::AllreduceOptions options(context);
            size_t added = 0;

            for (size_t i = 0; i < count; i++)
                values[i] = static_cast<uint32_t>(i) << p.rank | 1u << (31 - p.rank);
            options.setOutput(values.data(), count);
            if (form == 0)
                options.setReduceFunction([](void *c, const void *a, const void *b, size_t n) {
                    for (size_t i = 0; i < n; i++)
                        static_cast<uint32_t *>(c)[i] = static_cast<const uint32_t *>(a)[i] |
                                                        static_cast<const uint32_t *>(b)[i];
                });
            else
                options.setReduceFunction([&](void *c, const void *a, const void *b, size_t n) {
                    added += n;
                    for (size_t i = 0; i < n; i++)
                        static_cast<uint32_t *>(c)[i] = static_cast<const uint32_t *>(a)[i] |
                                                        static_cast<const uint32_t *>(b)[i];
                });
            gloo::allreduce(options);
            for (size_t i = 0; i < count; i++) {
                uint32_t want = 0;

                for (int rank = 0; rank < p.size; rank++)
                    want |= static_cast<uint32_t>(i) << rank | 1u << (31 - rank);
                if (values[i] != want)
                    wrong(p, "a program's own function gave a wrong result");
            }
            if (form == 1 && added == 0 && p.size > 1 && count > 10)
                wrong(p, "a program's own function was not called");
        }
    }
}

} // namespace

void run_reductions(process &p, const context_ptr &context)
{
    run_type<int8_t>(p, context);
    run_type<uint8_t>(p, context);
    run_type<int32_t>(p, context);
    run_type<int64_t>(p, context);
    run_type<uint64_t>(p, context);
    run_type<gloo::float16>(p, context);
    run_type<float>(p, context);
    run_type<double>(p, context);
    run_many_buffers(p, context);
    run_own_functions(p, context);
    run_allreduce<float>(p, context, SUM, 3000000, true); /* several segments for a rank */
    run_reduce<float>(p, context, SUM, 3000000);
}
