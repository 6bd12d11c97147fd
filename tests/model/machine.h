/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine with the weak memory of C11, in which the product's own code runs.
 *
 * Code compiled with -fsanitize=thread calls a function at each access to memory. Here these
 * functions are not the sanitizer's: each atomic access is a step of a simulated machine, in which
 * threads take turns in every order, and a load returns any store that the memory orders in the
 * code do not forbid, not only the last. So the order that 64-bit ARM may show shows on x86, every
 * time.
 *
 * The model is the operational one of release and acquire by views: each location has a history of
 * stores; each thread has a view, the oldest store of each location that it may still see. A
 * release store carries its thread's view along, an acquire load takes it over; fences do so for
 * the relaxed accesses around them. Plain accesses to shared memory that no such chain orders are
 * data races, and failures. Not in the model: stores that are performed before earlier loads (load
 * buffering), and stores of two threads to one location out of the order in which they took turns.
 * The product relies on neither.
 */
#ifndef SL_TESTS_MODEL_MACHINE_H
#define SL_TESTS_MODEL_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_SHARED_BYTES 40960

/* Memory that threads share, zero when an execution begins: what is plain in it is watched for
 * races. */
extern uint8_t model_shared[MODEL_SHARED_BYTES];

struct model_story {
    void (*begin)(void);     /* before the threads: seen by all */
    void (*thread[3])(void); /* NULL: no such thread */
    void (*end)(void);       /* after them, or NULL */
};

/*
 * Runs the story in all orders of at most `switches` forced switches between threads, and with all
 * values that loads may return; at most `limit` executions, of which what is left is drawn by
 * chance. Returns how many were run; negative: one failed, and model_why says how.
 */
long model_run(const struct model_story *story, unsigned switches, long limit);
extern char model_why[256];

/* In a story: ends this execution as a failure. */
#define model_check(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            model_fail("line %d: %s does not hold", __LINE__, #condition);                         \
    } while (0)
void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A copy of len bytes (a multiple of 8, aligned) that races by design and is judged afterwards:
 * word by word, as relaxed accesses. */
void model_copy_words(void *dst, const void *src, size_t len);

/* What stands for the system's: */
long model_syscall(long number, ...);            /* membarrier() alone */
int model_eventfd_write(int fd, uint64_t value); /* counts in model_wakes */
void *model_memcpy(void *dst, const void *src, size_t len);
int model_yield(void);
extern unsigned model_wakes;

#endif
