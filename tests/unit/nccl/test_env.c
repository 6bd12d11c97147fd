/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment plugin, by itself and inside the real libnccl, which needs no GPU to load it: the
 * texts that NCCL prints show which settings it got.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/nccl/abi_env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const char *plugin_path; /* of libnccl-env-sluice.so */
static char file_path[64];

static void write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

/* ---- by itself: each case in a process of its own, as settings are read once ---- */

static void in_child(void (*body)(const struct sl_nccl_env_v1 *))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
        const struct sl_nccl_env_v1 *plugin =
            library != NULL ? dlsym(library, "ncclEnvPlugin_v1") : NULL;

        alarm(20);
        if (plugin == NULL)
            _exit(99);
        setenv("SLUICE_NCCL_ENV_FILE", file_path, 1);
        body(plugin);
        _exit(98); /* a body ends by itself */
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "line %d: %s\n", __LINE__, #x);                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void ask_for_settings(const struct sl_nccl_env_v1 *plugin)
{
    const char *kept;

    setenv("NCCL_FROM_BOTH", "environment", 1);
    unsetenv("NCCL_DEBUG");
    CHECK(plugin->init(2, 28, 9, "") == SL_NCCL_SUCCESS);
    kept = plugin->get("NCCL_NET_PLUGIN");
    CHECK(kept != NULL && strcmp(kept, "sluice") == 0);
    CHECK(strcmp(plugin->get("NCCL_SPACES"), "a = b") == 0);
    CHECK(strcmp(plugin->get("NCCL_EMPTY"), "") == 0);
    CHECK(strcmp(plugin->get("NCCL_TWICE"), "second") == 0);
    CHECK(strcmp(plugin->get("NCCL_FROM_BOTH"), "environment") == 0);
    CHECK(plugin->get("NCCL_COMMENT") == NULL);
    CHECK(plugin->get("NCCL_DEBUG") == NULL);
    CHECK(plugin->get("NCCL_NET_PLUGIN") == kept);
    CHECK(plugin->finalize() == SL_NCCL_SUCCESS);
    CHECK(strcmp(kept, "sluice") == 0); /* NCCL may still hold it */
    _exit(0);
}

static void a_file_supplies_settings_and_the_environment_goes_first(void **state)
{
    (void)state;
    write_file("# settings of this cluster\n"
               "NCCL_NET_PLUGIN=sluice\n"
               "  NCCL_SPACES = a = b  \n"
               "NCCL_EMPTY=\n"
               "NCCL_TWICE=first\n"
               "this is none\n"
               "NCCL_TWICE=second\n"
               "#NCCL_COMMENT=1\n"
               "NCCL_FROM_BOTH=file\n"
               "NCCL_LAST=without a newline");
    in_child(ask_for_settings);
}

static void ask_beside_a_long_line(const struct sl_nccl_env_v1 *plugin)
{
    CHECK(plugin->init(2, 28, 9, "") == SL_NCCL_SUCCESS);
    CHECK(plugin->get("NCCL_LONG") == NULL);
    CHECK(plugin->get("NCCL_ALGO") == NULL);
    CHECK(plugin->get("") == NULL);
    CHECK(strcmp(plugin->get("NCCL_NEXT"), "2") == 0);
    _exit(0);
}

/* Where the reader's buffer ends a line goes on: what stands there is no line, also when it looks
 * like one. */
static void a_line_that_is_too_long_is_left_out_whole(void **state)
{
    static const char more[] = "NCCL_ALGO=Ring\n\r=1\nNCCL_NEXT=2\n";
    char text[4095 + sizeof(more)];

    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text, "NCCL_LONG=", 10);
    memcpy(text + 4095, more, sizeof(more));
    write_file(text);
    in_child(ask_beside_a_long_line);
}

static void ask_without_a_file(const struct sl_nccl_env_v1 *plugin)
{
    setenv("SLUICE_NCCL_ENV_FILE", "/nonexistent/file", 1);
    setenv("NCCL_OWN", "x", 1);
    CHECK(plugin->init(2, 28, 9, "") == SL_NCCL_SUCCESS);
    CHECK(plugin->get("NCCL_NET_PLUGIN") == NULL);
    CHECK(strcmp(plugin->get("NCCL_OWN"), "x") == 0);
    _exit(0);
}

static void without_its_file_it_is_the_environment_alone(void **state)
{
    (void)state;
    in_child(ask_without_a_file);
}

static char complaint[512];

static void ask_with_a_folder(const struct sl_nccl_env_v1 *plugin)
{
    int fds[2];

    CHECK(pipe(fds) == 0 && dup2(fds[1], STDERR_FILENO) == STDERR_FILENO);
    setenv("SLUICE_NCCL_ENV_FILE", "/proc", 1);
    CHECK(plugin->init(2, 28, 9, "") == SL_NCCL_SUCCESS);
    CHECK(read(fds[0], complaint, sizeof(complaint) - 1) > 0); /* alarm() ends what says nothing */
    CHECK(strcmp(complaint, "Sluice env: /proc:0: cannot be read\n") == 0);
    _exit(0);
}

static void a_folder_in_its_place_is_complained_about(void **state)
{
    (void)state;
    in_child(ask_with_a_folder);
}

/* ---- inside libnccl ---- */

static void *open_nccl(void)
{
    static const char *const names[] = {"libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2",
                                        "/usr/local/cuda/lib64/libnccl.so.2"};
    void *library = NULL;

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* Does NCCL print that when it is asked for an id? */
static bool nccl_says(const char *wanted)
{
    static char text[65536];
    struct pollfd ready = {.events = POLLIN};
    int ends[2], status;
    size_t len = 0;
    ssize_t n;

    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        uint8_t id[128];

        alarm(30);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        setenv("NCCL_DEBUG", "INFO", 1); /* what NCCL logs, it decides before it has plugins */
        setenv("NCCL_DEBUG_SUBSYS", "INIT,ENV", 1);
        unsetenv("NCCL_SOCKET_IFNAME");
        setenv("NCCL_ENV_PLUGIN", plugin_path, 1);
        setenv("SLUICE_NCCL_ENV_FILE", file_path, 1);
        void *library = open_nccl();
        int (*get_id)(void *) =
            library != NULL ? (int (*)(void *))dlsym(library, "ncclGetUniqueId") : NULL;

        status = get_id != NULL ? get_id(id) : 97;
        fflush(NULL); /* its lines */
        _exit(status);
    }
    close(ends[1]);
    ready.fd = ends[0];
    while (len < sizeof(text) - 1 && poll(&ready, 1, 30000) > 0 &&
           (n = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (strstr(text, wanted) == NULL)
        print_message("%s", text);
    return strstr(text, wanted) != NULL;
}

static void the_real_libnccl_takes_its_settings_from_the_file(void **state)
{
    void *library = open_nccl();

    (void)state;
    if (library == NULL) {
        print_message("no libnccl.so.2 here\n");
        skip();
    }
    dlclose(library);
    write_file("NCCL_SOCKET_IFNAME=lo\n");
    assert_true(nccl_says("NCCL_SOCKET_IFNAME set by environment to lo"));
    write_file("NCCL_COMM_ID=127.0.0.1:47111\n");
    assert_true(nccl_says("NCCL_COMM_ID set by environment to 127.0.0.1:47111"));
    assert_true(nccl_says("ENV/Plugin: Using Sluice (v1)"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_supplies_settings_and_the_environment_goes_first),
        cmocka_unit_test(a_line_that_is_too_long_is_left_out_whole),
        cmocka_unit_test(without_its_file_it_is_the_environment_alone),
        cmocka_unit_test(a_folder_in_its_place_is_complained_about),
        cmocka_unit_test(the_real_libnccl_takes_its_settings_from_the_file),
    };
    int failed;

    if (argc != 2)
        return 2;
    plugin_path = argv[1];
    snprintf(file_path, sizeof(file_path), "/tmp/sluice-nccl-env-%d", (int)getpid());
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file_path);
    return failed;
}
