/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: first its corpus, then a fixed number of seeded mutations
 * of it, as two TAP cases. On a crash the input is left in a file, whose name as argument replays
 * it. */
#include "core/rng.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX 65536
#define SEEDS_MAX 4096
#define MUTATIONS 20000 /* or FUZZ_MUTATIONS, where an input is a whole connection */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    size_t len;
    uint8_t *bytes;
};

static struct input seeds[SEEDS_MAX];
static size_t seed_count;
static struct input running; /* what the crash handler saves */
static char crash_path[64];

static struct sl_rng rng; /* one fixed seed: every run tries the same inputs */

static size_t below(size_t limit)
{
    return limit == 0 ? 0 : (size_t)sl_rng_below(&rng, limit);
}

/* Only async-signal-safe calls: the target may have died anywhere. */
static void save_input(int sig)
{
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    static const char text[] = "# this input ended the target; replay it by its name: ";

    if (fd >= 0) {
        (void)!write(fd, running.bytes, running.len);
        close(fd);
        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        (void)!write(STDERR_FILENO, crash_path, strlen(crash_path));
        (void)!write(STDERR_FILENO, "\n", 1);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Each input lives in a block of exactly its size, so that a sanitizer sees a read past the end. */
static void run(const uint8_t *bytes, size_t len)
{
    running = (struct input){len, malloc(len + (len == 0))};
    if (running.bytes == NULL)
        abort();
    memcpy(running.bytes, bytes, len);
    alarm(20); /* a target that does not end is a finding too */
    LLVMFuzzerTestOneInput(running.bytes, len);
    alarm(0);
    free(running.bytes);
}

static int load_file(const char *path)
{
    static uint8_t buf[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    size_t len;

    if (file == NULL || seed_count == SEEDS_MAX) {
        printf("# cannot read %s: %s\n", path, file == NULL ? strerror(errno) : "too many inputs");
        if (file != NULL)
            fclose(file);
        return -1;
    }
    len = fread(buf, 1, sizeof(buf), file);
    fclose(file);
    seeds[seed_count].bytes = malloc(len + (len == 0));
    if (seeds[seed_count].bytes == NULL)
        abort();
    memcpy(seeds[seed_count].bytes, buf, len);
    seeds[seed_count++].len = len;
    return 0;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Sorted, so that the n-th mutation is the same on every machine. */
static int load(const char *path)
{
    struct dirent **names;
    struct stat info;
    char full[PATH_MAX];
    int count, err = 0;

    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return load_file(path);
    count = scandir(path, &names, is_visible, alphasort);
    if (count < 0) {
        printf("# cannot list %s: %s\n", path, strerror(errno));
        return -1;
    }
    for (int i = 0; i < count; i++) {
        snprintf(full, sizeof(full), "%s/%s", path, names[i]->d_name);
        err |= load_file(full);
        free(names[i]);
    }
    free(names);
    return err;
}

static size_t flip_or_set(uint8_t *buf, size_t len)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff, ',', ':', '=', '0', '9', '-'};

    if (len > 0 && below(2) == 0)
        buf[below(len)] ^= (uint8_t)(1u << below(8));
    else if (len > 0)
        buf[below(len)] = edges[below(sizeof(edges))];
    return len;
}

/* Lengths and counts are where parsers break: puts an edge value over 2, 4 or 8 bytes. */
static size_t set_word(uint8_t *buf, size_t len)
{
    static const uint64_t edges[] = {
        0, 1, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff};
    size_t width = (size_t)2 << below(3);
    uint64_t value = edges[below(sizeof(edges) / sizeof(edges[0]))] + below(3) - 1;

    if (len >= width)
        memcpy(buf + below(len - width + 1), &value, width);
    return len;
}

static size_t insert_or_cut(uint8_t *buf, size_t len)
{
    size_t at = below(len + 1), n = 1 + below(8);

    if (below(2) == 0 && len + n <= INPUT_MAX) {
        memmove(buf + at + n, buf + at, len - at);
        for (size_t i = 0; i < n; i++)
            buf[at + i] = (uint8_t)sl_rng_u64(&rng);
        return len + n;
    }
    n = below(len - at + 1);
    memmove(buf + at, buf + at + n, len - at - n);
    return len - n;
}

/* Joins the start of this input with the end of another. */
static size_t join_with_other(uint8_t *buf, size_t len)
{
    const struct input *other = &seeds[below(seed_count)];
    size_t keep = below(len + 1), from = below(other->len + 1);

    if (keep + other->len - from > INPUT_MAX)
        return len;
    memcpy(buf + keep, other->bytes + from, other->len - from);
    return keep + other->len - from;
}

static void run_mutation(void)
{
    static size_t (*const ways[])(uint8_t *, size_t) = {flip_or_set, set_word, insert_or_cut,
                                                        join_with_other};
    static uint8_t buf[INPUT_MAX];
    const struct input *seed = &seeds[below(seed_count)];
    size_t len = seed->len;

    memcpy(buf, seed->bytes, len);
    for (size_t i = 0, times = 1 + below(4); i < times; i++)
        len = ways[below(sizeof(ways) / sizeof(ways[0]))](buf, len);
    run(buf, len);
}

int main(int argc, char **argv)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    const char *slash = strrchr(argv[0], '/');
    struct stat info;
    int err = 0, replay = argc > 1 && stat(argv[1], &info) == 0 && !S_ISDIR(info.st_mode);

    snprintf(crash_path, sizeof(crash_path), "crash-%s", slash != NULL ? slash + 1 : argv[0]);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        signal(fatal[i], save_input);
    sl_rng_init(&rng, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%d\n", replay ? 1 : 2);
    for (int i = 1; i < argc; i++)
        err |= load(argv[i]);
    run((const uint8_t *)"", 0);
    for (size_t i = 0; i < seed_count; i++)
        run(seeds[i].bytes, seeds[i].len);
    err |= seed_count == 0;
    printf("%sok 1 - every_input_of_the_corpus_is_survived\n", err != 0 ? "not " : "");
    if (!replay) {
        const char *count = getenv("FUZZ_MUTATIONS");
        size_t mutations = count != NULL ? strtoul(count, NULL, 10) : MUTATIONS;

        for (size_t i = 0; seed_count > 0 && i < mutations; i++)
            run_mutation();
        printf("%sok 2 - every_mutation_of_the_corpus_is_survived\n", err != 0 ? "not " : "");
    }
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].bytes);
    return err != 0;
}
