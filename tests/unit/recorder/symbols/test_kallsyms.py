# SPDX-License-Identifier: Apache-2.0
"""Names of kernel functions by address."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.symbols.kallsyms import (
    KernelSymbols,
    LiveKernelSymbols,
    Symbol,
    address_of,
    addresses_of,
    has_symbol,
    read_once,
    read_symbols,
    symbols_shown,
)

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


def test_mapping_symbols_are_no_functions() -> None:
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


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"0000000000000000 T _stext\n" * 3, b"ffffffff81000000", b"short\n"]
)
def test_hidden_or_odd_symbols(text: bytes) -> None:
    # GIVEN no symbols, hidden addresses, or cut lines  WHEN they are read  THEN there are none
    symbols = KernelSymbols(text)
    assert len(symbols) == 0
    assert symbols.find(0xFFFFFFFF81000000) is None


@pytest.mark.parametrize(("address", "shown"), [(b"0" * 16, False), (b"ffffffff81000000", True)])
def test_whether_symbols_are_shown(tmp_path: Path, address: bytes, shown: bool) -> None:
    # GIVEN symbols with their addresses, or without
    path = tmp_path / "kallsyms"
    path.write_bytes(b"0000000000000000 A fixed_percpu_data\n" + address + b" T _stext\n")
    # THEN that is seen; and a kernel that has no such file hides them
    assert symbols_shown(path) is shown
    assert not symbols_shown(tmp_path / "none")


def test_a_last_line_without_its_end() -> None:
    # GIVEN a text that ends without a newline
    symbols = KernelSymbols(b"ffffffff81000000 T _stext")
    # THEN its last name is whole
    assert symbols.find(0xFFFFFFFF81000001) == Symbol("_stext", "", 1)


def test_this_kernels_own() -> None:
    # GIVEN this machine's symbols, where they are shown
    live = LiveKernelSymbols()
    if os.geteuid() != 0 or not live.available:
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


def test_the_address_of_a_function(tmp_path: Path) -> None:
    # GIVEN symbols of the kernel, of a module, data, and hidden ones
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000010 t wanted_not\nffffffff81000020 T wanted\nffffffff81000030 d data\n"
        "ffffffffc0000040 t other\t[module]\n0000000000000000 T hidden\n"
    )
    # WHEN functions of the kernel itself are asked for  THEN those that it shows have an address
    assert address_of("wanted", path) == 0xFFFFFFFF81000020
    assert [address_of(name, path) for name in ("data", "other", "hidden", "none")] == [0] * 4


def test_addresses_of_several_functions(tmp_path: Path) -> None:
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
        assert not has_symbol("not", read_symbols(path))
        assert has_symbol("not_wanted", read_symbols(path))
    # AND what comes later reads again
    assert address_of("wanted", path) == 0xFFFFFFFF81000060
