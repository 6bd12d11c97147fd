/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into a copy of sluice-bench that the tests run: the linker's --wrap leads every allreduce
 * of the benchmark through here, where rank 1 loses one bit. So the way from a wrong element to the
 * exit status is tested without a hook in the tool that is shipped. */
#include <sluice/sluice.h>

int __wrap_sluice_allreduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                            enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req);
int __real_sluice_allreduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                            enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req);

int __wrap_sluice_allreduce(struct sluice_comm *comm, const void *in, void *out, size_t count,
                            enum sluice_dtype dtype, enum sluice_op op, struct sluice_req **req)
{
    int err = __real_sluice_allreduce(comm, in, out, count, dtype, op, req);

    if (err == 0 && req == NULL && sluice_comm_rank(comm) == 1)
        ((unsigned char *)out)[count * sluice_dtype_size(dtype) / 2] ^= 1;
    return err;
}
