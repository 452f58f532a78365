# SPDX-License-Identifier: Apache-2.0
"""Names of functions: of the kernel by address, of programs by build id."""

import ctypes
import lzma
import os
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from biotrail.recorder.symbols.elf import Elf, NoElfError
from biotrail.recorder.symbols.kallsyms import (
    KernelSymbols,
    Symbol,
    address_of,
    addresses_of,
    functions_named,
    read_once,
    read_symbols,
    symbols_shown,
)
from biotrail.recorder.symbols.user_symbols import UserSymbols

# Names of kernel functions by address.

TEXT = b"""\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000040 t do_one
ffffffff81000040 T do_one_global
ffffffff81000100 W weak_one
ffffffff81000200 D some_data
ffffffffc0002000 t helper\t[ext4]
ffffffffc0001000 T ext4_first\t[ext4]
ffffffffc0003000 t bpf_prog_12ab_bt_queue\t[bpf]
"""


@pytest.mark.parametrize(
    ("address", "found"),
    [
        (0xFFFFFFFF80FFFFFF, None),
        (0xFFFFFFFF81000000, Symbol("_stext", "", 0)),
        (0xFFFFFFFF81000050, Symbol("do_one_global", "", 16)),
        (0xFFFFFFFF810002F0, Symbol("weak_one", "", 0x1F0)),
        (0xFFFFFFFF91000000, None),
        (0xFFFFFFFFC0001FFF, Symbol("ext4_first", "ext4", 0xFFF)),
        (0xFFFFFFFFC0002004, Symbol("helper", "ext4", 4)),
        (0xFFFFFFFFC0003001, Symbol("bpf_prog_12ab_bt_queue", "bpf", 1)),
        (0, None),
    ],
)
def test_functions_by_address(address: int, found: Symbol | None) -> None:
    # GIVEN symbols out of order, of modules, data and two of one address
    symbols = KernelSymbols(TEXT)
    # WHEN an address is looked up  THEN the function before it is found, unless it is far
    assert symbols.find(address) == found


def test_mapping_symbols_and_cut_lines() -> None:
    # GIVEN arm64's symbols, in which code and the data within it are marked
    text = b"""\
ffff800008010000 t $x
ffff800008010000 t bcm2835_handle_irq
ffff800008010040 t $d.12
ffff800008010044 t $x.13
ffff800008010100 T gic_handle_irq
ffff800008010100 T $x
ffff80000a000000 t $x\t[virtio_blk]
ffff80000a000000 t virtblk_done\t[virtio_blk]
"""
    symbols = KernelSymbols(text)
    # WHEN addresses behind marks are looked up  THEN the functions around them are found
    assert len(symbols) == 3
    assert symbols.find(0xFFFF800008010050) == Symbol("bcm2835_handle_irq", "", 0x50)
    assert symbols.find(0xFFFF800008010104) == Symbol("gic_handle_irq", "", 4)
    assert symbols.find(0xFFFF80000A000008) == Symbol("virtblk_done", "virtio_blk", 8)
    # GIVEN a text that ends without a newline
    symbols = KernelSymbols(b"ffffffff81000000 T _stext")
    # THEN its last name is whole
    assert symbols.find(0xFFFFFFFF81000001) == Symbol("_stext", "", 1)


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"0000000000000000 T _stext\n" * 3, b"ffffffff81000000", b"short\n"]
)
def test_hidden_odd_or_cut_symbols(text: bytes) -> None:
    # GIVEN no symbols, hidden addresses, or cut lines  WHEN they are read  THEN there are none
    symbols = KernelSymbols(text)
    assert len(symbols) == 0
    assert symbols.find(0xFFFFFFFF81000000) is None


def test_whether_symbols_are_shown(tmp_path: Path) -> None:
    # GIVEN symbols with their addresses, or without THEN that is seen
    path = tmp_path / "kallsyms"
    for address, shown in ((b"0" * 16, False), (b"ffffffff81000000", True)):
        path.write_bytes(b"0000000000000000 A fixed_percpu_data\n" + address + b" T _stext\n")
        assert symbols_shown(path) is shown
    # AND a kernel that has no such file hides them
    assert not symbols_shown(tmp_path / "none")


def test_this_kernels_own() -> None:
    # GIVEN this machine's symbols, where they are shown
    live = KernelSymbols()
    if os.geteuid() != 0 or not len(live):
        pytest.skip("the kernel hides its symbols")
    # WHEN an address from the file is looked up
    line = next(
        line
        for line in Path("/proc/kallsyms").read_text().splitlines()
        if line.endswith((" T submit_bio_noacct", " T submit_bio"))
    )
    found = live.find(int(line.split()[0], 16) + 5)
    # THEN it is that function
    assert found == Symbol(line.split()[2], "", 5)


def test_addresses_of_functions(tmp_path: Path) -> None:
    # GIVEN symbols of the kernel and of modules, some of them twice, data, and hidden ones
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000010 t wanted_not\nffffffff81000020 T wanted\nffffffff81000030 d data\n"
        "ffffffffc0000040 t other\t[module]\nffffffffc0000050 t other\t[second]\n"
        "0000000000000000 T hidden\n"
    )
    # WHEN they are asked for  THEN those that are shown have the first address
    found = addresses_of(("wanted", "data", "other", "hidden", "none"), path)
    assert found == {"wanted": 0xFFFFFFFF81000020, "other": 0xFFFFFFFFC0000040}
    assert addresses_of(("wanted",), tmp_path / "none") == {}
    # AND of one of them alone likewise
    assert address_of("wanted", path) == 0xFFFFFFFF81000020
    assert [address_of(name, path) for name in ("data", "other", "hidden", "none")] == [0] * 4


def test_one_reading_for_several_look_ups(tmp_path: Path) -> None:
    # GIVEN symbols among them names that are a part of another
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000010 T not_wanted\nffffffff81000020 D wanted\nffffffff81000030 t wanted.cold\n"
        "ffffffff81000040 t wanted\nffffffffc0000050 T last\t[module]"
    )
    with read_once():
        # WHEN one is looked up and the kernel's symbols change meanwhile
        assert address_of("wanted", path) == 0xFFFFFFFF81000040
        path.write_text("ffffffff81000060 T wanted\n")
        # THEN the next look-up is of the same reading, up to its last line without an end
        assert addresses_of(["last", "wanted", "none"], path) == {
            "last": 0xFFFFFFFFC0000050,
            "wanted": 0xFFFFFFFF81000040,
        }
        assert list(functions_named("not", read_symbols(path))) == []
        assert list(functions_named("last", read_symbols(path))) == [
            (0xFFFFFFFFC0000050, b"[module]")
        ]
    # AND what comes later reads again
    assert address_of("wanted", path) == 0xFFFFFFFF81000060


# ELF files and the functions in them, found by build id.

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
    for name, (value, size) in {"data": (0x1102, 4), **functions}.items():
        info, place = 1 if name == "data" else 2, len(names)
        names += name.encode() + b"\0"
        if wide:
            symbols += struct.pack(order + "IBBHQQ", place, info, 0, 1, value, size)
        else:
            symbols += struct.pack(order + "IIIBBH", place, value, size, info, 0, 1)
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


def test_a_file_is_believed_by_its_build_id_and_closed(tmp_path: Path, empty: Path) -> None:
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
