/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's types as the engine sees them: elements to reduce, or bytes to move. */
#include "core/err.h"
#include "tools/preload/mpi_module.h"

#include <limits.h>

/* By kind and size. -1: the engine has no such elements. */
static int8_t dtype_of(char kind, size_t size)
{
    static const struct {
        char kind;
        uint8_t size;
        int8_t dtype;
    } known[] = {
        {'i', 1, SLUICE_I8},  {'i', 4, SLUICE_I32},  {'i', 8, SLUICE_I64}, {'u', 1, SLUICE_U8},
        {'u', 4, SLUICE_U32}, {'u', 8, SLUICE_U64},  {'f', 4, SLUICE_F32}, {'f', 8, SLUICE_F64},
        {'c', 8, SLUICE_F32}, {'c', 16, SLUICE_F64},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(known); i++)
        if (known[i].kind == kind && known[i].size == size)
            return known[i].dtype;
    return -1;
}

/* Its place in the table, or the free one where it would be. */
static struct sl_mpi_type *slot_of(uintptr_t handle)
{
    size_t at = (size_t)((uint64_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 40);

    for (;; at++) {
        struct sl_mpi_type *slot = &sl_mpi.types[at & (SL_MPI_TYPE_SLOTS - 1)];

        if (slot->handle == handle || slot->handle == 0)
            return slot;
    }
}

void sl_mpi_type_add(MPI_Datatype type, char kind)
{
    MPI_Count size;

    if ((uintptr_t)type == 0 || type == sl_mpi.no_type ||
        sl_mpi.next.Type_size_x(type, &size) != MPI_SUCCESS || size <= 0)
        return; /* this library was built without it */
    *slot_of((uintptr_t)type) = (struct sl_mpi_type){
        .handle = (uintptr_t)type,
        .size = (uint32_t)size,
        .dtype = dtype_of(kind, (size_t)size),
        .per = kind == 'c' ? 2 : 1,
    };
}

const struct sl_mpi_type *sl_mpi_type_find(MPI_Datatype type)
{
    const struct sl_mpi_type *slot = slot_of((uintptr_t)type);

    return slot->handle != 0 ? slot : NULL;
}

int sl_mpi_form_of(MPI_Datatype type, struct sl_mpi_form *out)
{
    const struct sl_mpi_type *known = sl_mpi_type_find(type);
    MPI_Aint low, extent;
    MPI_Count size;

    if (known != NULL) {
        *out = (struct sl_mpi_form){type, known->size, (MPI_Aint)known->size, true};
        return MPI_SUCCESS;
    }
    if ((uintptr_t)type == 0 || type == sl_mpi.no_type)
        return MPI_ERR_TYPE;
    int code = sl_mpi.next.Type_size_x(type, &size);

    if (code == MPI_SUCCESS)
        code = sl_mpi.next.Type_get_extent(type, &low, &extent);
    if (code == MPI_SUCCESS)
        *out = (struct sl_mpi_form){type, (size_t)size, extent, false};
    return code;
}

/* MPI packs up to INT_MAX bytes at a time. Elements per turn; 0: one is too large. */
static int64_t per_turn(const struct sl_mpi_form *form)
{
    return form->size != 0 ? (int64_t)((size_t)INT_MAX / form->size) : INT_MAX;
}

/* Between count elements at user and as many in bytes, packed. */
static int move(const struct sl_mpi_form *form, char *user, int64_t count, char *bytes, bool pack)
{
    const int64_t most = per_turn(form);

    while (count > 0) {
        int n = (int)(count < most ? count : most), at = 0, len = (int)((size_t)n * form->size);

        if (n == 0)
            return sl_fail(-ENOTSUP,
                           "one element of an MPI type is %zu bytes long, more than MPI packs",
                           form->size);
        int code = pack ? sl_mpi.next.Pack(user, n, form->type, bytes, len, &at, sl_mpi.self)
                        : sl_mpi.next.Unpack(bytes, len, &at, user, n, form->type, sl_mpi.self);

        if (code != MPI_SUCCESS || at != len)
            return sl_fail(-EIO, "MPI %s %d bytes of %d elements, not %d",
                           pack ? "packed" : "unpacked", at, n, len);
        user += (int64_t)n * form->extent;
        bytes += len;
        count -= n;
    }
    return 0;
}

int sl_mpi_pack(const struct sl_mpi_form *form, const void *user, int64_t count, void *bytes)
{
    return move(form, (char *)(uintptr_t)user, count, bytes, true);
}

int sl_mpi_unpack(const struct sl_mpi_form *form, const void *bytes, void *user, int64_t count)
{
    return move(form, user, count, (char *)(uintptr_t)bytes, false);
}
