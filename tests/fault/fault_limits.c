/* SPDX-License-Identifier: Apache-2.0 */
/* What is missing or limited on the machine ends in a sentence that says what to change. Two ranks,
 * forked, with a limit on each. */
#include "core/err.h"

#include <sluice/sluice.h>

#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 2

struct outcome {
    struct sluice_unique_id id;
    int code[RANKS], collective[RANKS];
    char text[RANKS][1024];
};

static struct outcome *outcome; /* shared with the ranks */

static void limit(int what, rlim_t value)
{
    struct rlimit both = {value, value};

    setrlimit(what, &both);
}

/* As sandboxes do it. */
static void refuse_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(1);
}

static void live(int rank, int resource, rlim_t value)
{
    struct sluice_comm *comm = NULL;
    int32_t in = rank + 1, out = 0;

    if (resource == -1)
        refuse_uring();
    else
        limit(resource, value);
    int err = sluice_comm_create_id(&outcome->id, rank, RANKS, NULL, &comm);

    outcome->code[rank] = err;
    if (err != 0) {
        snprintf(outcome->text[rank], sizeof(outcome->text[rank]), "%s", sluice_last_error());
        _exit(0);
    }
    err = sluice_allreduce(comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, NULL);
    outcome->collective[rank] = err != 0 ? err : out == 3 ? 0 : -EBADMSG;
    sluice_comm_destroy(comm);
    _exit(0);
}

/* Two ranks under the limit; each must end by itself. resource -1: io_uring is refused. */
static void run(const char *transport, int resource, rlim_t value)
{
    pid_t pid[RANKS];

    memset(outcome, 0, sizeof(*outcome));
    setenv("SLUICE_TRANSPORT", transport, 1);
    setenv("SLUICE_TUNE", "off", 1);
    setenv("SLUICE_LOG", "error", 1);
    setenv("SLUICE_INTERFACE", "lo", 1);
    setenv("SLUICE_CONNECT_TIMEOUT_MS", "2000", 1);
    setenv("SLUICE_TIMEOUT_MS", "2000", 1);
    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        pid[i] = -1;
        if (i == 0 && sluice_unique_id_create(&outcome->id) != 0)
            fail_msg("%s", sluice_last_error());
        pid[i] = fork();
        if (pid[i] == 0)
            live(i, resource, value);
    }
    for (int i = 0; i < RANKS; i++) {
        int status;

        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("rank %d ended with status 0x%x", i, status);
    }
}

static void expect_words(const char *words)
{
    for (int i = 0; i < RANKS; i++)
        if (strstr(outcome->text[i], words) != NULL)
            return;
    fail_msg("no rank says '%s': %d: %s / %d: %s", words, outcome->code[0], outcome->text[0],
             outcome->code[1], outcome->text[1]);
}

static void expect_success(void)
{
    for (int i = 0; i < RANKS; i++)
        if (outcome->code[i] != 0 || outcome->collective[i] != 0)
            fail_msg("rank %d: %d, %d: %s", i, outcome->code[i], outcome->collective[i],
                     outcome->text[i]);
}

/* Whatever number of descriptors there is: the ranks work, or one says what to raise. */
static void sweep_descriptors(const char *transport)
{
    static const rlim_t counts[] = {6, 9, 12, 16, 24, 256};
    bool failed = false, worked = false;

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        run(transport, RLIMIT_NOFILE, counts[i]);
        if (outcome->code[0] == 0 && outcome->code[1] == 0) {
            expect_success();
            worked = true;
        } else {
            expect_words("ulimit -n");
            failed = true;
        }
    }
    assert_true(failed && worked);
}

static void too_few_descriptors_for_shm_say_what_to_raise(void **state)
{
    (void)state;
    sweep_descriptors("shm");
}

static void too_few_descriptors_for_tcp_say_what_to_raise(void **state)
{
    (void)state;
    setenv("SLUICE_TCP_ENGINE", "epoll", 1);
    sweep_descriptors("tcp");
}

static void an_address_space_limit_below_the_rings_says_what_to_raise(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("the sanitizer needs the address space\n");
    skip();
#endif
    (void)state;
    setenv("SLUICE_SHM_RING_BYTES", "512M", 1);
    run("shm", RLIMIT_AS, 700u << 20);
    unsetenv("SLUICE_SHM_RING_BYTES");
    expect_words("ulimit -v");
}

static void a_file_size_limit_below_the_rings_says_what_to_raise(void **state)
{
    (void)state;
    setenv("SLUICE_SHM_RING_BYTES", "64M", 1);
    run("shm", RLIMIT_FSIZE, 1 << 20);
    unsetenv("SLUICE_SHM_RING_BYTES");
    expect_words("ulimit -f");
}

static void io_uring_that_is_refused_says_so_when_it_was_asked_for(void **state)
{
    (void)state;
    setenv("SLUICE_TCP_ENGINE", "uring", 1);
    run("tcp", -1, 0);
    if (strstr(outcome->text[0], "liburing was not there") != NULL) {
        print_message("built without liburing\n");
        skip();
    }
    expect_words("io_uring is refused");
    expect_words("a sandbox forbids it");
}

static void io_uring_that_is_refused_is_no_matter_otherwise(void **state)
{
    (void)state;
    setenv("SLUICE_TCP_ENGINE", "auto", 1);
    run("tcp", -1, 0);
    expect_success();
}

static void no_locked_memory_is_no_matter(void **state)
{
    (void)state;
    setenv("SLUICE_TCP_ENGINE", "auto", 1);
    run("tcp", RLIMIT_MEMLOCK, 0);
    expect_success();
    run("shm", RLIMIT_MEMLOCK, 0);
    expect_success();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_few_descriptors_for_shm_say_what_to_raise),
        cmocka_unit_test(too_few_descriptors_for_tcp_say_what_to_raise),
        cmocka_unit_test(an_address_space_limit_below_the_rings_says_what_to_raise),
        cmocka_unit_test(a_file_size_limit_below_the_rings_says_what_to_raise),
        cmocka_unit_test(io_uring_that_is_refused_says_so_when_it_was_asked_for),
        cmocka_unit_test(io_uring_that_is_refused_is_no_matter_otherwise),
        cmocka_unit_test(no_locked_memory_is_no_matter),
    };

    outcome =
        mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return outcome == MAP_FAILED ? 1 : cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
