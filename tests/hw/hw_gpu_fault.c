/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with an error that its GPU tells of: a kernel that writes to address 8, which is
 * nobody's. The driver says so in the kernel's log (an XID) and ends the context.
 *
 * Status 0: the driver reported the error; 1: it did not; 77 and the reason: there is no GPU.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ILLEGAL_ADDRESS 700

static const char kernel[] = ".version 7.0\n"
                             ".target sm_70\n"
                             ".address_size 64\n"
                             ".visible .entry fault() {\n"
                             "    .reg .b64 %at;\n"
                             "    .reg .b32 %value;\n"
                             "    mov.u64 %at, 8;\n"
                             "    mov.u32 %value, 1;\n"
                             "    st.global.u32 [%at], %value;\n"
                             "    ret;\n"
                             "}\n";

static void find(void *library, const char *name, void *out)
{
    void *function = dlsym(library, name);

    if (function == NULL) {
        printf("libcuda.so.1 has no %s\n", name);
        exit(77);
    }
    memcpy(out, &function, sizeof(function));
}

static void check(int result, const char *what)
{
    if (result != 0) {
        printf("%s: CUDA error %d\n", what, result);
        exit(1);
    }
}

int main(void)
{
    int (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int), (*current)(void *),
        (*load)(void **, const void *), (*function)(void **, void *, const char *), (*wait)(void);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *fault;
    int device, result;

    if (library == NULL) {
        printf("%s\n", dlerror());
        return 77;
    }
    find(library, "cuInit", &init);
    find(library, "cuDeviceGet", &device_get);
    find(library, "cuDevicePrimaryCtxRetain", &retain);
    find(library, "cuCtxSetCurrent", &current);
    find(library, "cuModuleLoadData", &load);
    find(library, "cuModuleGetFunction", &function);
    find(library, "cuLaunchKernel", &launch);
    find(library, "cuCtxSynchronize", &wait);
    if (init(0) != 0 || device_get(&device, 0) != 0) {
        printf("CUDA finds no GPU\n");
        return 77;
    }
    check(retain(&context, device), "a context");
    check(current(context), "that context");
    check(load(&module, kernel), "the kernel is loaded");
    check(function(&fault, module, "fault"), "the kernel is found");
    check(launch(fault, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "the kernel is launched");
    result = wait();
    printf("the kernel ended with CUDA error %d\n", result);
    return result == ILLEGAL_ADDRESS ? 0 : 1;
}
