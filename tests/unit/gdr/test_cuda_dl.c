/* SPDX-License-Identifier: Apache-2.0 */
/* How the CUDA driver is found, or not: in its place the toolkit's library of that name to link
 * with, whose every call fails. */
#include "gdr/cuda_dl.h"

#include "core/err.h"
#include "gdr/gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char *library;
static unsigned opened;

void *dlopen(const char *name, int flags);

/* On this machine it is the driver, loaded as soon as somebody opens it. */
void *dlopen(const char *name, int flags)
{
    void *(*next)(const char *, int);
    void *symbol = dlsym(RTLD_NEXT, "dlopen");

    memcpy(&next, &symbol, sizeof(next));
    if (name == NULL || strcmp(name, "libcuda.so.1") != 0)
        return next(name, flags);
    if ((flags & RTLD_NOLOAD) == 0)
        opened++;
    return next(library, flags);
}

static void a_process_without_cuda_has_no_gpu_memory_and_loads_no_driver_to_know_it(void **state)
{
    int local = 0;

    (void)state;
    assert_null(sl_cuda_loaded());
    assert_false(sl_gpu_look(&local, NULL));
    assert_int_equal(opened, 0);
}

static void every_function_is_in_the_library_of_the_toolkit(void **state)
{
    const struct sl_cuda *cuda = NULL;

    (void)state;
    if (access(library, R_OK) != 0) {
        assert_int_equal(sl_cuda_get(&cuda), -ENOTSUP);
        assert_null(cuda);
        assert_non_null(
            strstr(sluice_last_error(), "there is no CUDA driver to use: libcuda.so.1 cannot"));
        print_message("no %s here\n", library);
        skip();
    }
    assert_int_equal(sl_cuda_get(&cuda), 0);
#define THERE(name, args) assert_non_null(cuda->name);
    SL_CUDA_FUNCTIONS(THERE, THERE)
    assert_ptr_equal(sl_cuda_loaded(), cuda);
    assert_int_equal(opened, 1);
}

static void a_driver_that_fails_every_call_owns_no_memory(void **state)
{
    int local = 0;
    struct sl_gpu_memory memory;

    (void)state;
    if (sl_cuda_loaded() == NULL) {
        print_message("no CUDA driver here\n");
        skip();
    }
    assert_int_not_equal(sl_cuda_loaded()->cuInit(0), SL_CUDA_SUCCESS);
    assert_false(sl_gpu_look(&local, &memory));
}

static void no_driver_is_told_in_a_sentence(void **state)
{
    const struct sl_cuda *cuda = NULL;

    (void)state;
    sl_cuda_replace(NULL);
    assert_null(sl_cuda_loaded());
    assert_int_equal(sl_cuda_get(&cuda), -ENOTSUP);
    assert_null(cuda);
    assert_string_equal(sluice_last_error(), "there is no CUDA driver to use: none is installed");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_without_cuda_has_no_gpu_memory_and_loads_no_driver_to_know_it),
        cmocka_unit_test(every_function_is_in_the_library_of_the_toolkit),
        cmocka_unit_test(a_driver_that_fails_every_call_owns_no_memory),
        cmocka_unit_test(no_driver_is_told_in_a_sentence)};

    library = argc > 1 ? argv[1] : "absent";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
