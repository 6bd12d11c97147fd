/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up what compression came to, and says it. */
#include "lib/compress_report.h"

#include "core/stderr_line.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node living;
static struct sl_compression_sums ended;
static int told_rank = -1, told_pid; /* of the process that is to tell; 0: none */

static struct sl_node *list(void)
{
    if (living.next == NULL)
        sl_list_init(&living);
    return &living;
}

void sl_compression_begins(struct sl_compression_counted *counted)
{
    pthread_mutex_lock(&lock);
    sl_list_push_back(list(), &counted->link);
    pthread_mutex_unlock(&lock);
}

void sl_compression_ends(struct sl_compression_counted *counted)
{
    pthread_mutex_lock(&lock);
    sl_list_remove(&counted->link);
    counted->sum(counted, &ended);
    pthread_mutex_unlock(&lock);
}

void sl_compression_sum(struct sl_compression_sums *out)
{
    pthread_mutex_lock(&lock);
    *out = ended;
    sl_list_foreach(list(), node)
    {
        struct sl_compression_counted *counted =
            sl_container_of(node, struct sl_compression_counted, link);

        counted->sum(counted, out);
    }
    pthread_mutex_unlock(&lock);
}

bool sl_compression_text(const struct sl_compression_sums *sums, char *out, size_t cap)
{
    double part = sums->raw_bytes != 0 ? (double)sums->wire_bytes / (double)sums->raw_bytes : 0;
    double saved = (double)sums->raw_ns - (double)sums->busy_ns;

    out[0] = '\0';
    if (sums->calls == 0 && sums->raw_calls == 0)
        return false;
    sl_text_add(out, cap, "%llu calls sent %llu bytes in place of %llu (%.1f %%)",
                (unsigned long long)sums->calls, (unsigned long long)sums->wire_bytes,
                (unsigned long long)sums->raw_bytes, 100 * part);
    if (sums->measured && sums->power > 0)
        sl_text_add(out, cap, ", error %.3g", sums->error / sums->power);
    if (sums->raw_ns != 0)
        sl_text_add(out, cap, ", %s about %.3f ms", saved >= 0 ? "saved" : "lost",
                    (saved >= 0 ? saved : -saved) / 1e6);
    sl_text_add(out, cap, "; %llu calls left as they are, which is faster",
                (unsigned long long)sums->raw_calls);
    return true;
}

void sl_compression_tell(int rank)
{
    struct sl_compression_sums sums;
    char text[512];

    sl_compression_sum(&sums);
    if (sl_compression_text(&sums, text, sizeof(text)))
        sl_stderr_line("sluice compress: rank %d: %s", rank, text);
}

static void tell(void)
{
    if (told_pid == getpid() && told_rank == 0) /* not a child after fork() */
        sl_compression_tell(told_rank);
}

void sl_compression_tell_at_exit(int rank)
{
    bool first;

    pthread_mutex_lock(&lock);
    first = told_pid == 0;
    if (first) {
        told_pid = getpid();
        told_rank = rank;
    }
    pthread_mutex_unlock(&lock);
    if (first)
        atexit(tell);
}
