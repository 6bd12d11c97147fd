#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The binding by ctypes: each function, structure and number of it against the dump of the interface, and two ranks that
average by it. Needs no PyTorch.
usage: ctypes_matches.py SOURCE_ROOT libsluice.so
"""
import array
import ctypes
import ctypes.util
import os
import re
import signal
import sys
import tempfile
import traceback
import xml.etree.ElementTree

ROOT, LIBRARY = sys.argv[1], sys.argv[2]
sys.path.insert(0, f"{ROOT}/tools/torch")
sys.dont_write_bytecode = True
import sluice_ctypes  # noqa: E402 pylint: disable=wrong-import-position

COUNT = 20000


class Dump:
    """tests/abi/sluice.abi"""

    def __init__(self, path):
        root = xml.etree.ElementTree.parse(path).getroot()
        self.types = {element.get("id"): element for element in root.iter() if element.get("id")}
        self.functions = {element.get("name"): element for element in root.iter("function-decl")}
        self.structures = {element.get("name"): element for element in root.iter("class-decl") if element.get("size-in-bits")}
        self.enums = {element.get("name"): {one.get("name"): int(one.get("value")) for one in element.iter("enumerator")}
                      for element in root.iter("enum-decl")}

    def kind(self, type_id):
        """What a machine sees of a type: ("int", bits, signed), ("float", bits), ("pointer", the structure's name or ""),
        ("array", elements, of what) or ("void",)."""
        element = self.types[type_id]
        if element.tag in ("typedef-decl", "qualified-type-def"):
            return self.kind(element.get("type-id"))
        if element.tag == "pointer-type-def":
            return "pointer", self.name_of(element.get("type-id"))
        if element.tag == "array-type-def":
            return "array", int(element.find("subrange").get("length")), self.kind(element.get("type-id"))
        if element.tag == "enum-decl":
            return "int", 32, True
        name, bits = element.get("name"), int(element.get("size-in-bits") or 0)
        if name == "void":
            return ("void",)
        return ("float", bits) if name in ("float", "double") else ("int", bits, "unsigned" not in name)

    def name_of(self, type_id):
        """Of the structure that a pointer is to, or ""."""
        element = self.types[type_id]
        while element.tag == "qualified-type-def":
            element = self.types[element.get("type-id")]
        return element.get("name") if element.tag == "class-decl" else ""


def kind_of(ctype):
    """The same of a type of ctypes."""
    if ctype is None:
        return ("void",)
    if issubclass(ctype, ctypes.Array):
        return "array", ctype._length_, kind_of(ctype._type_)
    if ctype in (ctypes.c_char_p, ctypes.c_void_p):
        return "pointer", ""
    if hasattr(ctype, "contents"):
        names = [name for name, structure in sluice_ctypes.STRUCTURES.items() if structure is ctype._type_]
        return "pointer", names[0] if names else ""
    if ctype in (ctypes.c_float, ctypes.c_double):
        return "float", 8 * ctypes.sizeof(ctype)
    return "int", 8 * ctypes.sizeof(ctype), ctype(-1).value < 0


def agree(mine, theirs):
    """A pointer to what only the library knows is any pointer here; one to a structure must be to that one."""
    if mine[0] == "pointer" and theirs[0] == "pointer":
        return mine[1] == theirs[1] or theirs[1] not in sluice_ctypes.STRUCTURES
    return mine == theirs


def functions_are_those_of_the_dump(dump):
    for name, (result, arguments) in sluice_ctypes.SIGNATURES.items():
        there = dump.functions[name]
        mine = [kind_of(result)] + [kind_of(argument) for argument in arguments]
        returned = there.find("return")
        theirs = [dump.kind(returned.get("type-id"))] + [dump.kind(one.get("type-id")) for one in there.findall("parameter")]
        assert len(mine) == len(theirs) and all(map(agree, mine, theirs)), f"{name}: {mine} here, {theirs} in the dump"


def structures_are_those_of_the_dump(dump):
    for name, structure in sluice_ctypes.STRUCTURES.items():
        there = dump.structures[name]
        assert 8 * ctypes.sizeof(structure) == int(there.get("size-in-bits")), name
        theirs = [(one.find("var-decl").get("name"), int(one.get("layout-offset-in-bits")), dump.kind(one.find("var-decl").get("type-id")))
                  for one in there.findall("data-member")]
        mine = [(field, 8 * getattr(structure, field).offset, kind_of(ctype)) for field, ctype in structure._fields_]
        assert [one[:2] for one in mine] == [one[:2] for one in theirs], f"{name}: {mine} here, {theirs} in the dump"
        assert all(agree(a[2], b[2]) for a, b in zip(mine, theirs)), f"{name}: {mine} here, {theirs} in the dump"


def numbers_are_those_of_the_dump(dump):
    for prefix, names, mine in (("SLUICE_", "sluice_dtype", sluice_ctypes.DTYPES), ("SLUICE_", "sluice_op", sluice_ctypes.OPS)):
        theirs = {name[len(prefix):].lower(): value for name, value in dump.enums[names].items() if not name.endswith("_COUNT")}
        assert mine == theirs, f"{names}: {mine} here, {theirs} in the dump"
    with open(f"{ROOT}/include/sluice/error.h", encoding="utf8") as header:
        parts = re.findall(r"#define SLUICE_VERSION_\w+ (\d+)", header.read())
    assert sluice_ctypes.VERSION == int(parts[0]) * 10000 + int(parts[1]) * 100 + int(parts[2]), parts


def another_library_is_refused(_):
    name = ctypes.util.find_library("c") or "libc.so.6"
    for path in (name, "/nonexistent/libsluice.so.0"):
        try:
            sluice_ctypes.load(path)
        except (OSError, AttributeError, sluice_ctypes.SluiceError):
            continue
        raise AssertionError(f"{path} was taken for libsluice")


# ---- two ranks ----

def floats(rank, step):
    return array.array("f", (((rank + 1) * (i * 7919 + step * 104729)) % 1009 / 1009 - 0.5 for i in range(COUNT)))


def refused(call, *parts):
    """The call fails, by a sentence with these parts."""
    try:
        call()
    except sluice_ctypes.SluiceError as error:
        assert error.code < 0 and all(part in str(error) for part in parts), f"{error.code}: {error}"
        return
    raise AssertionError(f"nothing failed where {parts} should be said")


def average(comm, memory, operation, step):
    """In memory; the mean as it should be, about."""
    memory[:] = floats(comm.rank, step)
    assert operation.start()
    operation.wait()
    given = [floats(rank, step) for rank in range(comm.size)]
    return sum((memory[i] - (given[0][i] + given[1][i]) / 2) ** 2 for i in range(COUNT)) / COUNT


def two_ranks(comm):
    refused(lambda: comm.set_compression("zip"), 'there is no codec "zip"')
    comm.set_compression("bq4:when=always,min=0,feedback=on,measure=on")
    memory = floats(0, 0)
    address, results = memory.buffer_info()[0], []
    operation = comm.allreduce(address, COUNT, "f32", "avg")
    for step in range(4):
        if step == 2:
            saved = operation.save()
        error = average(comm, memory, operation, step)
        assert 0 < error < 1e-2, error
        results.append(memory.tobytes())
    memory[:] = floats(comm.rank, 9)
    assert operation.start()
    refused(operation.save, "has not ended")
    operation.wait()
    operation.free()
    # From what was saved the same two steps end with the same bits; without it they do not.
    for load in (False, True):
        operation = comm.allreduce(address, COUNT, "f32", "avg")
        if load:
            operation.load(saved)
        again = [average(comm, memory, operation, step) and memory.tobytes() for step in (2, 3)]
        assert (again == results[2:]) == load
        operation.free()
    refused(lambda: comm.allreduce(address, COUNT, "f32", "avg").load(b"nothing"), "")
    said = comm.report()
    assert said["calls"] == 9 and 7 < said["ratio"] < 8 and 0 < said["error"] < 0.1, said
    comm.set_compression("")
    plain = comm.allreduce(address, COUNT, "f32", "avg")
    assert average(comm, memory, plain, 5) < 1e-12 and plain.save() is None
    plain.free()
    comm.set_compression("bq8:when=always,min=0" if comm.rank == 0 else "bq4:when=always,min=0")
    unlike = comm.allreduce(address, COUNT, "f32", "avg")
    assert unlike.start()
    refused(unlike.wait, "bq8", "bq4")
    unlike.free()


def rank_main(rank, unique_id):
    library = sluice_ctypes.load(LIBRARY)
    comm = library.communicator(unique_id, rank, 2, timeout_ms=20000)
    two_ranks(comm)
    comm.close()


def two_ranks_average_by_a_codec(_):
    signal.alarm(60)
    with tempfile.TemporaryFile("w+") as said:
        # The meeting place is that of the process that made it.
        library = sluice_ctypes.load(LIBRARY)
        unique_id = library.unique_id()
        child = os.fork()
        if child == 0:
            try:
                rank_main(1, unique_id)
            except BaseException:  # pylint: disable=broad-except
                said.write(traceback.format_exc())
                said.flush()
                os._exit(1)
            os._exit(0)
        rank_main(0, unique_id)
        status = os.waitpid(child, 0)[1]
        said.seek(0)
        assert status == 0, said.read()


def one_thread_is_not_enough(_):
    for said, good in ((None, True), ("thread", True), ("caller", False)):
        os.environ.pop("SLUICE_PROGRESS", None)
        if said is not None:
            os.environ["SLUICE_PROGRESS"] = said
        if good:
            sluice_ctypes.use_any_thread()
            assert os.environ["SLUICE_PROGRESS"] == "thread"
        else:
            refused(sluice_ctypes.use_any_thread, "SLUICE_PROGRESS=caller")


def main():
    dump = Dump(f"{ROOT}/tests/abi/sluice.abi")
    cases = [functions_are_those_of_the_dump, structures_are_those_of_the_dump, numbers_are_those_of_the_dump, another_library_is_refused,
             two_ranks_average_by_a_codec, one_thread_is_not_enough]
    failed = 0
    for number, case in enumerate(cases, 1):
        try:
            case(dump)
            print(f"ok {number} - {case.__name__}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {number} - {case.__name__}")
            print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
    print(f"1..{len(cases)}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
