/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of several threads, contexts that come and go, ranks that come late or die, fork(); and
 * speed. */
#include "gloo_program.hh"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

using function = void (*)(void *, const void *, const void *, size_t);
using sclock = std::chrono::steady_clock;

static void add(const context_ptr &context, float *values, size_t count, uint32_t tag)
{
    gloo::AllreduceOptions options(context);

    options.setOutput(values, count);
    options.setReduceFunction(function(&gloo::sum<float>));
    options.setTag(tag);
    gloo::allreduce(options);
}

/* One call of a queue: the kind and size follow from its tag. */
static void one_call(const process &p, const context_ptr &context, uint32_t tag)
{
    size_t count = tag % 7 == 0 ? 60000 : tag % 50 + 1;
    float ranks = static_cast<float>(p.size), sum = ranks * (ranks - 1) / 2;
    int root = static_cast<int>(tag) % p.size;
    std::vector<float> values(count, static_cast<float>(tag % 1000) + static_cast<float>(p.rank));
    float want = static_cast<float>(tag % 1000) * ranks + sum;

    if (tag % 5 == 4) {
        gloo::BroadcastOptions options(context);

        options.setOutput(values.data(), count);
        options.setRoot(root);
        options.setTag(tag);
        gloo::broadcast(options);
        want = static_cast<float>(tag % 1000) + static_cast<float>(root);
    } else {
        add(context, values.data(), count, tag);
    }
    for (float value : values)
        if (value != want)
            wrong(p, "call " + std::to_string(tag) + " gave " + std::to_string(value) +
                         " instead of " + std::to_string(want));
}

/*
 * As PyTorch's process groups do: calls are queued in one order on all ranks, and threads take them
 * from there, so that several are under way, begun in an order of each rank's own. Pauses make the
 * orders differ.
 */
void run_threads(process &p)
{
    constexpr uint32_t CALLS = 600;
    context_ptr contexts[2] = {p.connect(), p.connect()};

    for (unsigned threads : {2u, 4u}) {
        std::atomic<uint32_t> next{0};
        std::vector<std::thread> pool;

        for (unsigned t = 0; t < threads; t++)
            pool.emplace_back([&, t] {
                std::mt19937 random(static_cast<unsigned>(p.rank) * 10 + t);

                for (uint32_t tag = next++; tag < CALLS; tag = next++) {
                    if (random() % 4 == 0)
                        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
                    one_call(p, contexts[tag % 3 == 0], tag);
                }
            });
        for (std::thread &thread : pool)
            thread.join();
    }
}

static int count_files()
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (dir != nullptr && readdir(dir) != nullptr)
        count++;
    if (dir != nullptr)
        closedir(dir);
    return count;
}

/* Groups are made and dropped; what belongs to them goes too. */
void run_contexts(process &p)
{
    int files = 0;

    for (uint32_t round = 0; round < 8; round++) {
        context_ptr context = p.connect();

        for (uint32_t tag = 0; tag < 5; tag++)
            one_call(p, context, tag + round);
        if (round == 2)
            files = count_files();
    }
    context_ptr last = p.connect();

    one_call(p, last, 1);
    if (count_files() > files + 8)
        wrong(p, "contexts that are gone still hold " + std::to_string(count_files() - files) +
                     " files");
}

/* Files that the shim opens with the first call of a context; gloo's own are open before. */
static int files_of_first_call(const process &p, const context_ptr &context)
{
    int before = count_files();

    one_call(p, context, 1);
    return count_files() - before;
}

/* A thread's further contexts use the connections of its first one; those of another thread, which
 * may call while this one does, have their own. */
void run_again(process &p)
{
    std::vector<context_ptr> contexts = {p.connect()};
    int files = files_of_first_call(p, contexts[0]), more;

    if (files < 8)
        wrong(p, "the first context opened " + std::to_string(files) + " files only");
    for (int i = 0; i < 3; i++) {
        contexts.push_back(p.connect());
        more = files_of_first_call(p, contexts.back());
        if (more > 2)
            wrong(p, "another context opened " + std::to_string(more) + " files");
        one_call(p, contexts[0], 2);
    }
    std::thread([&] { more = files_of_first_call(p, p.connect()); }).join();
    if (more < 8)
        wrong(p, "another thread's context opened " + std::to_string(more) + " files only");
}

/* Rank 0 comes too late: the others give up when they were told to, by gloo's exception. */
void run_late(process &p)
{
    context_ptr context = p.connect(std::chrono::milliseconds(1500));

    one_call(p, context, 1);
    if (p.rank == 0) { /* away until the others have left */
        std::this_thread::sleep_for(std::chrono::seconds(4));
        return;
    }
    auto begin = sclock::now();

    try {
        one_call(p, context, 2);
    } catch (const gloo::IoException &e) {
        auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(sclock::now() - begin);

        if (waited.count() < 1000 || waited.count() > 3500)
            wrong(p, "gave up after " + std::to_string(waited.count()) + " ms: " + e.what());
        fprintf(p.out, "late\n");
        try {
            one_call(p, context, 3);
        } catch (const gloo::IoException &) {
            return;
        }
        wrong(p, "a context that failed works again");
    }
    wrong(p, "a call without rank 0 ended well");
}

/* The last rank dies: the others get gloo's exception long before the deadline. */
void run_death(process &p)
{
    context_ptr context = p.connect();

    one_call(p, context, 1);
    if (p.rank == p.size - 1)
        _exit(42);
    try {
        for (uint32_t tag = 2; tag < 200; tag++)
            one_call(p, context, tag);
    } catch (const gloo::IoException &) {
        return;
    }
    wrong(p, "calls without a rank ended well");
}

/* A program's own function throws on one rank: it gets its exception, the others gloo's. */
void run_throw(process &p)
{
    context_ptr context = p.connect();
    std::vector<float> values(1000, 1);

    one_call(p, context, 1);
    gloo::AllreduceOptions options(context);

    options.setOutput(values.data(), values.size());
    options.setTag(2);
    options.setReduceFunction([&](void *c, const void *a, const void *b, size_t n) {
        if (p.rank == 1)
            throw std::out_of_range("the program's own");
        gloo::sum<float>(c, a, b, n);
    });
    try {
        gloo::allreduce(options);
        for (uint32_t tag = 3; tag < 10; tag++)
            one_call(p, context, tag);
    } catch (const std::out_of_range &) {
        if (p.rank == 1)
            return;
        wrong(p, "got another rank's exception");
    } catch (const gloo::IoException &) {
        if (p.rank != 1)
            return;
        wrong(p, "did not get its own exception");
    }
    wrong(p, "a call whose function threw ended well");
}

/* One rank adds up whole numbers, the others fractions of the same size: whoever differs from rank
 * 0 is told what it called, and what rank 0 did. */
void run_mismatch(process &p)
{
    context_ptr context = p.connect();
    std::vector<float> values(1000, 1);
    std::vector<int32_t> whole(1000, 1);

    one_call(p, context, 1);
    gloo::AllreduceOptions options(context);

    options.setTag(2);
    if (p.rank == 1) {
        options.setOutput(whole.data(), whole.size());
        options.setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<int32_t>));
    } else {
        options.setOutput(values.data(), values.size());
        options.setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    }
    try {
        gloo::allreduce(options);
    } catch (const gloo::IoException &e) {
        std::string text = e.what();
        const char *wanted = p.rank == 1
                                 ? "ranks disagree about gloo::allreduce: rank 0 has 1000 elements "
                                   "of 4 bytes (f32, sum), "
                                   "rank 1 1000 elements of 4 bytes (i32, sum)"
                                 : "gloo::allreduce of 1000 elements of 4 bytes (f32, sum): ";

        if (text.find(wanted) == std::string::npos)
            wrong(p, "the sentence is: " + text);
        return;
    }
    wrong(p, "sums of different types ended well");
}

/* Children that a trainer forks to load data run and end, and its calls go on. */
void run_fork(process &p)
{
    context_ptr context = p.connect();

    one_call(p, context, 1);
    fflush(nullptr);
    pid_t pid = fork();

    if (pid == 0)
        exit(0); /* with the handlers that run at exit */
    one_call(p, context, 2);
    int status = 0;

    if (waitpid(pid, &status, 0) != pid || status != 0)
        wrong(p, "the child ended badly");
    for (uint32_t tag = 3; tag < 40; tag++)
        one_call(p, context, tag);
    fprintf(p.out, "fork\n");
}

void run_speed(process &p, size_t bytes, int times)
{
    context_ptr context = p.connect();
    std::vector<float> values(bytes / sizeof(float), 1);
    std::vector<double> us;

    for (int i = 0; i < times + 5; i++) {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
        auto begin = sclock::now();

        add(context, values.data(), values.size(), static_cast<uint32_t>(i));
        if (i >= 5)
            us.push_back(std::chrono::duration<double, std::micro>(sclock::now() - begin).count());
    }
    std::sort(us.begin(), us.end());
    if (p.rank == 0)
        printf("allreduce of %zu bytes, %d ranks: median %.1f us, best %.1f us\n", bytes, p.size,
               us[us.size() / 2], us[0]);
}
