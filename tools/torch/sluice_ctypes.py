# SPDX-License-Identifier: Apache-2.0
"""libsluice from Python, by ctypes: what the public headers declare, with errors as exceptions.

Nothing is built and nothing beside Python's own library is needed. SIGNATURES, STRUCTURES, DTYPES and OPS are those of
the headers of VERSION; a test compares them with the dump of the library's interface.

    library = sluice_ctypes.load()
    comm = library.communicator(library.unique_id(), rank=0, size=1)
    operation = comm.allreduce(address, count, "f32", "avg")
    operation.start()
    operation.wait()

Memory that an operation is made of belongs to the caller and must outlive it. Calls that wait let other threads of
Python run. Threads: see use_any_thread().
"""
import ctypes
import errno
import glob
import os

VERSION = 100  # SLUICE_VERSION of the headers: major * 10000 + minor * 100 + patch
SONAME = "libsluice.so.0"

_int, _size, _text, _pointer = ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
_POINTER = ctypes.POINTER


class UniqueId(ctypes.Structure):
    """struct sluice_unique_id"""
    _fields_ = [("bytes", ctypes.c_ubyte * 256)]


class Config(ctypes.Structure):
    """struct sluice_config"""
    _fields_ = [("struct_size", _size), ("rank", _int), ("size", _int), ("root", _text), ("job", _text), ("secret", _text),
                ("transport", _text), ("algo", _text), ("timeout_ms", ctypes.c_int64), ("version", _int), ("reserved", _int)]


class CompressionReport(ctypes.Structure):
    """struct sluice_compression_report"""
    _fields_ = [("calls", ctypes.c_uint64), ("raw_bytes", ctypes.c_uint64), ("wire_bytes", ctypes.c_uint64),
                ("error", ctypes.c_double), ("saved_ns", ctypes.c_int64), ("raw_calls", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 2)]


STRUCTURES = {"sluice_unique_id": UniqueId, "sluice_config": Config, "sluice_compression_report": CompressionReport}
DTYPES = {"i8": 0, "u8": 1, "i32": 2, "u32": 3, "i64": 4, "u64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}

# Communicators, operations and requests are pointers to what the library alone knows.
SIGNATURES = {
    "sluice_version": (_int, []),
    "sluice_version_string": (_text, []),
    "sluice_last_error": (_text, []),
    "sluice_error_area": (_text, []),
    "sluice_error_culprit": (_int, []),
    "sluice_config_init_sized": (None, [_POINTER(Config), _size, _int]),
    "sluice_unique_id_create": (_int, [_POINTER(UniqueId)]),
    "sluice_comm_create_id": (_int, [_POINTER(UniqueId), _int, _int, _POINTER(Config), _POINTER(_pointer)]),
    "sluice_comm_destroy": (None, [_pointer]),
    "sluice_comm_set_compression": (_int, [_pointer, _text]),
    "sluice_comm_compression_report": (_int, [_pointer, _POINTER(CompressionReport)]),
    "sluice_allreduce_init": (_int, [_pointer, _pointer, _pointer, _size, _int, _int, _POINTER(_pointer)]),
    "sluice_start": (_int, [_pointer, _POINTER(_pointer)]),
    "sluice_wait": (_int, [_pointer]),
    "sluice_operation_free": (None, [_pointer]),
    "sluice_operation_save": (_int, [_pointer, _pointer, _POINTER(_size)]),
    "sluice_operation_load": (_int, [_pointer, _pointer, _size]),
}


class SluiceError(RuntimeError):
    """A call that failed: its sentence, and what the library knows beside it. code is a negative errno; culprit the rank
    to blame, or -1; area the part of Sluice that saw it."""

    def __init__(self, code, sentence, area="", culprit=-1):
        super().__init__(sentence or os.strerror(-code))
        self.code, self.area, self.culprit = code, area, culprit


def use_any_thread():
    """Has communicators that are made from now on take calls of any thread, by SLUICE_PROGRESS=thread in the environment.
    Their operations then go on while no call is inside."""
    said = os.environ.setdefault("SLUICE_PROGRESS", "thread")
    if said != "thread":
        raise SluiceError(-errno.EINVAL, f"SLUICE_PROGRESS={said} lets one thread at a time use a communicator, and this one is used "
                          "by several: unset it, or say thread")


def find():
    """Where the library lies that this file was installed with, or built beside; else its name, for the loader to find."""
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for pattern in ("lib*", "lib/*", "build/lib"):
        for path in sorted(glob.glob(os.path.join(prefix, pattern, SONAME))):
            return path
    return SONAME


def load(path=None):
    """The library at path, or that of find(). OSError: there is none. SluiceError: it is of another version."""
    return Library(path or find())


class Library:
    """The loaded library. Functions are attributes by their names in C."""

    def __init__(self, path):
        self.path = path
        self._dll = ctypes.CDLL(path)
        self._bind("sluice_version", "sluice_version_string")
        if self.sluice_version() // 100 != VERSION // 100:
            raise SluiceError(-errno.EPROTO, f"{path} is Sluice {self.version()}, and this module is for "
                              f"{VERSION // 10000}.{VERSION // 100 % 100}: take both from one installation")
        self._bind(*SIGNATURES)

    def _bind(self, *names):
        for name in names:
            function = getattr(self._dll, name)
            function.restype, function.argtypes = SIGNATURES[name]
            setattr(self, name, function)

    def version(self):
        return self.sluice_version_string().decode()

    def check(self, code):
        """code, unless it is an error of the call that this thread made last."""
        if code < 0:
            raise SluiceError(code, self.sluice_last_error().decode(errors="replace"), self.sluice_error_area().decode(),
                              self.sluice_error_culprit())
        return code

    def unique_id(self):
        """A new meeting place in this process, which must be rank 0 of it, as 256 bytes for the other ranks."""
        made = UniqueId()
        self.check(self.sluice_unique_id_create(ctypes.byref(made)))
        return bytes(made)

    def communicator(self, unique_id, rank, size, timeout_ms=-1):
        """Waits for all ranks. timeout_ms: of every later wait; -1: SLUICE_TIMEOUT_MS."""
        return Communicator(self, unique_id, rank, size, timeout_ms)


class Communicator:
    """A struct sluice_comm. close() ends it."""

    def __init__(self, library, unique_id, rank, size, timeout_ms):
        config, handle = Config(), _pointer()
        library.sluice_config_init_sized(ctypes.byref(config), ctypes.sizeof(config), VERSION)
        config.timeout_ms = timeout_ms
        self.library, self.rank, self.size, self._handle = library, rank, size, None
        library.check(library.sluice_comm_create_id(UniqueId.from_buffer_copy(unique_id), rank, size, ctypes.byref(config),
                                                    ctypes.byref(handle)))
        self._handle = handle

    def set_compression(self, text):
        """Of operations that are made from now on: "bq4:feedback=on"; "": none."""
        self.library.check(self.library.sluice_comm_set_compression(self._handle, text.encode()))

    def report(self):
        """What compression came to on this rank: calls, raw_bytes, wire_bytes, their ratio (raw over wire; None before the
        first call), and error, in mean squares over those of the elements (None without measure=on); raw_calls, left as they
        are, which is faster, and saved_ns, the estimated time saved."""
        said = CompressionReport()
        self.library.check(self.library.sluice_comm_compression_report(self._handle, ctypes.byref(said)))
        return {"calls": said.calls, "raw_bytes": said.raw_bytes, "wire_bytes": said.wire_bytes,
                "ratio": said.raw_bytes / said.wire_bytes if said.wire_bytes else None,
                "error": said.error if said.error >= 0 else None, "raw_calls": said.raw_calls, "saved_ns": said.saved_ns}

    def allreduce(self, address, count, dtype, op):
        """A persistent operation that reduces count elements at address in their place."""
        handle = _pointer()
        self.library.check(self.library.sluice_allreduce_init(self._handle, address, address, count, DTYPES[dtype], OPS[op], ctypes.byref(handle)))
        return Operation(self.library, handle)

    def close(self):
        self.library.sluice_comm_destroy(self._handle)
        self._handle = None


class Operation:
    """A struct sluice_operation. free() ends it."""

    def __init__(self, library, handle):
        self.library, self._handle, self._request, self._pending = library, handle, _pointer(), False

    def start(self):
        """False: too many operations are under way; try again when one has ended."""
        code = self.library.sluice_start(self._handle, ctypes.byref(self._request))
        if code == -errno.EAGAIN:
            return False
        self.library.check(code)
        self._pending = True
        return True

    def wait(self):
        """Until what was started has ended."""
        self._pending = False
        self.library.check(self.library.sluice_wait(self._request))

    def save(self):
        """What it keeps from start to start, as bytes; None: nothing, as it is not compressed."""
        if self._pending:
            raise SluiceError(-errno.EINVAL, "this operation was started and has not ended: wait for it before it is saved")
        size = _size()
        code = self.library.sluice_operation_save(self._handle, None, ctypes.byref(size))
        if code == -errno.EINVAL:
            return None
        self.library.check(code)
        room = ctypes.create_string_buffer(size.value)
        self.library.check(self.library.sluice_operation_save(self._handle, room, ctypes.byref(size)))
        return room.raw[:size.value]

    def load(self, saved):
        """Goes on from what save() gave."""
        self.library.check(self.library.sluice_operation_load(self._handle, saved, len(saved)))

    def free(self):
        self.library.sluice_operation_free(self._handle)
        self._handle = None
