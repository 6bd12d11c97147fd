# SPDX-License-Identifier: Apache-2.0
"""What NCCL says of itself without a GPU, through dlopen and dlsym: the same with and without the shim."""
import ctypes


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


nccl = ctypes.CDLL("libnccl.so.2")
nccl.ncclGetErrorString.restype = ctypes.c_char_p
nccl.ncclGetLastError.restype = ctypes.c_char_p
version, error, comm, unique = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), Id()
print("version", nccl.ncclGetVersion(ctypes.byref(version)), version.value)
print("id", nccl.ncclGetUniqueId(ctypes.byref(unique)))
print([nccl.ncclGetErrorString(k) for k in range(8)])
print("init", nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique, 5), nccl.ncclGetLastError(None))
print("allreduce", nccl.ncclAllReduce(None, None, ctypes.c_size_t(1), 7, 0, None, None))
print(nccl.ncclGetLastError(None))
print("group", nccl.ncclGroupStart(), nccl.ncclGroupEnd(), nccl.ncclGroupEnd())
print("state", nccl.ncclCommGetAsyncError(None, ctypes.byref(error)))
print("ends", nccl.ncclCommDestroy(None), nccl.ncclCommAbort(None))
