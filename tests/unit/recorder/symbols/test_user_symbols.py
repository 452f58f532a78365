# SPDX-License-Identifier: Apache-2.0
"""ELF files and the functions in them, found by build id."""

import ctypes
import lzma
import os
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from biotrail.recorder.symbols.elf import Elf, NoElfError
from biotrail.recorder.symbols.user_symbols import UserSymbols

BUILD_ID = bytes(range(1, 21))
FUNCTIONS = {"main": (0x1100, 0x40), "_start": (0x1000, 0), "helper": (0x1140, 0x10)}
SIZES = {True: (64, 56), False: (52, 32)}
"""Of the header and of a segment's entry, by whether the program is one of 64 bits."""
OFFSET = 0x100
"""Of the code in the file; it is loaded at 0x1000."""


def symbol_table(
    functions: dict[str, tuple[int, int]], *, wide: bool, order: str
) -> tuple[bytes, bytes]:
    """Names and symbols of functions (value, size), behind a variable that is none."""
    names, symbols = b"\0", b""
    for name, (value, size) in [("data", (0x1102, 4)), *functions.items()]:
        info = 1 if name == "data" else 2
        place = len(names)
        names += name.encode() + b"\0"
        symbols += (
            struct.pack(order + "IBBHQQ", place, info, 0, 1, value, size)
            if wide
            else struct.pack(order + "IIIBBH", place, value, size, info, 0, 1)
        )
    return names, symbols


def header(sections_at: int, *, wide: bool, order: str) -> bytes:
    """The header of a program with two segments, and four sections at this offset."""
    header_bytes, segment_bytes = SIZES[wide]
    address = "Q" if wide else "I"
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    return ident + struct.pack(
        f"{order}HHI{address}{address}{address}IHHHHHH",
        *(3, 62, 1, 0x1000, header_bytes, sections_at, 0, header_bytes, segment_bytes, 2),
        *(64 if wide else 40, 4, 2),
    )


def elf(
    build_id: bytes = BUILD_ID,
    *,
    wide: bool = True,
    order: str = "<",
    stripped: bool = False,
    functions: dict[str, tuple[int, int]] = FUNCTIONS,
    inner: bytes = b"",
) -> bytes:
    """A small program with a build id, a segment of code and a table of symbols."""
    note = struct.pack(order + "III", 4, len(build_id), 3) + b"GNU\0" + build_id
    names, symbols = symbol_table(functions, wide=wide, order=order)
    header_bytes, segment_bytes = SIZES[wide]
    at = header_bytes + 2 * segment_bytes
    note_at, symbols_at = at, at + len(note)
    names_at = symbols_at + len(symbols)
    sections_at = names_at + len(names)
    debug_name = len(names)
    names += b".gnu_debugdata\0"
    sections_at += len(b".gnu_debugdata\0") + len(inner)

    def segment(kind: int, offset: int, where: int, size: int) -> bytes:
        if wide:
            return struct.pack(order + "IIQQQQQQ", kind, 5, offset, where, where, size, size, 1)
        return struct.pack(order + "IIIIIIII", kind, offset, where, where, size, size, 5, 1)

    def section(kind: int, offset: int, size: int, link: int, name: int = 0) -> bytes:
        form = "IIQQQQIIQQ" if wide else "IIIIIIIIII"
        return struct.pack(order + form, name, kind, 0, 0, offset, size, link, 0, 1, 0)

    table = 11 if stripped else 2
    return b"".join(
        [
            header(sections_at, wide=wide, order=order),
            segment(4, note_at, 0, len(note)),
            segment(1, OFFSET, 0x1000, 0x1000),
            note,
            symbols,
            names,
            inner,
            section(0, 0, 0, 0),
            section(table, symbols_at, len(symbols), 2),
            section(3, names_at, len(names), 0),
            section(1, names_at + len(names), len(inner), 0, debug_name),
        ]
    )


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A /proc without processes."""
    path = tmp_path / "proc"
    path.mkdir()
    return path


def symbols_of(path: Path, proc: Path) -> UserSymbols:
    return UserSymbols(known=[str(path)], proc=proc, commands=[])


@pytest.mark.parametrize("stripped", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [True, False])
def test_functions_by_offset(
    tmp_path: Path, empty: Path, wide: bool, order: str, stripped: bool
) -> None:
    # GIVEN a program, of 64 or 32 bits, of either order of bytes, with either table of symbols
    path = tmp_path / "program"
    path.write_bytes(elf(wide=wide, order=order, stripped=stripped))
    symbols = symbols_of(path, empty)
    symbols.look_for([BUILD_ID])

    def find(address: int, *, called: bool = False) -> tuple[str, int]:
        name, file, offset = symbols.find(BUILD_ID, address - 0x1000 + OFFSET, called=called)
        assert file == str(path)
        return name, offset

    # WHEN places in it are looked up  THEN they are in the function that holds them
    assert find(0x1104) == ("main", 4)
    assert find(0x1140) == ("helper", 0)
    # AND a call that is a function's last instruction is its, not the next one's
    assert find(0x1140, called=True) == ("main", 0x40)
    # AND a function of no known size goes on to the next; what is in none has no name
    assert find(0x1010) == ("_start", 0x10)
    assert find(0x1150) == ("", 0x150 + OFFSET)


def test_a_file_is_believed_by_its_build_id_alone(tmp_path: Path, empty: Path) -> None:
    # GIVEN a program that was replaced by another after it was seen
    path = tmp_path / "program"
    path.write_bytes(elf())
    symbols = symbols_of(path, empty)
    path.write_bytes(elf(bytes(20)))
    # WHEN it is looked for by the id of the first
    symbols.look_for([BUILD_ID])
    # THEN it is not found, and its build id is what is told
    where = f"build id {BUILD_ID.hex()}"
    assert symbols.find(BUILD_ID, 0x204, called=False) == ("", where, 0x204)


def test_commands_are_found_though_they_have_ended(tmp_path: Path, empty: Path) -> None:
    # GIVEN a program among the commands, and no process
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "program").write_bytes(elf())
    (tmp_path / "bin" / "script").write_text("#!/bin/sh\n")
    os.mkfifo(tmp_path / "bin" / "pipe")
    symbols = UserSymbols(proc=empty, commands=[str(tmp_path / "bin"), "/nonexistent"])
    # WHEN it is looked for  THEN it is found
    symbols.look_for([BUILD_ID, b"x" * 20])
    assert symbols.find(BUILD_ID, 0x204, called=False).name == "main"


def test_files_of_running_processes() -> None:
    # GIVEN a function of the C library, which this process has mapped
    function = ctypes.cast(ctypes.CDLL(None).pread64, ctypes.c_void_p).value
    assert function is not None
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, _, *path = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= function < end:
            break
    library = Elf(path[0])
    build_id = library.build_id()
    if not build_id:
        pytest.skip("the C library has no build id")
    # WHEN its place in the file is looked up by the library's build id
    symbols = UserSymbols(commands=[])
    symbols.look_for([build_id])
    found = symbols.find(build_id, function + 5 - begin + int(offset, 16), called=False)
    # THEN it is that function, in that file
    assert "pread" in found.name
    assert found.offset == 5
    assert found.file == path[0]


def test_symbols_in_a_compressed_section(tmp_path: Path, empty: Path) -> None:
    # GIVEN a program without symbols that has them, compressed, in a section of their own
    path = tmp_path / "program"
    outer = elf(functions={}, inner=lzma.compress(elf()))
    path.write_bytes(outer)
    symbols = symbols_of(path, empty)
    # WHEN a place in it is looked up  THEN the function is found
    symbols.look_for([BUILD_ID])
    assert symbols.find(BUILD_ID, 0x204, called=False) == ("main", str(path), 4)
    # AND what is damaged in there is no function
    path.write_bytes(outer[:-300] + bytes(10) + outer[-290:])
    symbols = symbols_of(path, empty)
    symbols.look_for([BUILD_ID])
    assert symbols.find(BUILD_ID, 0x204, called=False).name == ""


def test_damaged_files_have_no_symbols(tmp_path: Path, empty: Path) -> None:
    # GIVEN programs of which some bytes are others, and some that are cut
    draw = random.Random(7)
    path = tmp_path / "program"
    for wide in (True, False):
        whole = elf(wide=wide)
        for _ in range(1500):
            data = bytearray(whole[: draw.choice([len(whole), draw.randrange(len(whole))])])
            for _ in range(draw.randrange(4)):
                if data:
                    data[draw.randrange(len(data))] = draw.choice([0, 1, 127, 255])
            path.write_bytes(data)
            # WHEN they are read  THEN there is no other error than that
            with suppress(NoElfError):
                program = Elf(path)
                try:
                    program.build_id()
                    program.inner()
                    functions = program.functions()
                    for place in functions.names.tolist():
                        program.text(place)
                    program.address(0x204)
                finally:
                    program.close()


def test_files_are_closed(tmp_path: Path, empty: Path) -> None:
    # GIVEN many programs that are looked at and not needed
    paths = [tmp_path / str(number) for number in range(50)]
    for number, path in enumerate(paths):
        path.write_bytes(elf(bytes([number]) * 20) if number % 2 else b"no program")
    before = len(os.listdir("/proc/self/fd"))
    # WHEN one of them is needed
    symbols = UserSymbols(known=map(str, paths), proc=empty, commands=[])
    symbols.look_for([bytes([1]) * 20])
    # THEN only that one stays open
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert symbols.find(bytes([1]) * 20, 0x204, called=False).name == "main"
