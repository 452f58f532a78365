# SPDX-License-Identifier: Apache-2.0
"""What the bcc backend makes of tracepoint formats, and its C beside the same in Python."""

import ctypes
import itertools
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.bcc import filters as bcc_filters
from biotrail.recorder.probes.bcc import source as bcc_source
from biotrail.recorder.probes.maps.admission import DeviceFilter
from biotrail.recorder.probes.programs import PROBES
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema import formats
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.kernel_names import ERRNO, FLAGS, OPS, RWBS_FLAGS, RWBS_OPS, opf_of
from biotrail.recorder.schema.records import BY_LETTER

SIZES = RingSizes(1 << 20, 4096)

ISSUE_5_10 = """\
name: block_rq_issue
ID: 1203
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;
\tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;
\tfield:char rwbs[8];\toffset:32;\tsize:8;\tsigned:1;
\tfield:char comm[16];\toffset:40;\tsize:16;\tsigned:1;
\tfield:__data_loc char[] cmd;\toffset:56;\tsize:4;\tsigned:1;

print fmt: "%d,%d %s", ((unsigned int) ((REC->dev) >> 20)), REC->rwbs
"""
ISSUE_6_18 = ISSUE_5_10.replace(
    "\tfield:char rwbs[8];\toffset:32;\tsize:8;",
    "\tfield:unsigned short ioprio;\toffset:32;\tsize:2;\tsigned:0;\n"
    "\tfield:char rwbs[10];\toffset:34;\tsize:10;",
)


def form(*fields: tuple[str, int, int]) -> formats.Format:
    found = {name: formats.Field(name, at, size, False) for name, at, size in fields}
    return formats.Format("made_up", 1, found)


def test_a_format_is_read() -> None:
    # GIVEN the text of an old kernel WHEN it is parsed
    found = formats.parse("block_rq_issue", ISSUE_5_10)
    # THEN number, names, places and sizes are there, of arrays and of what is elsewhere too
    assert found.number == 1203
    assert found.fields["rwbs"] == formats.Field("rwbs", 32, 8, True, "char", 8)
    assert found.fields["nr_sector"] == formats.Field("nr_sector", 24, 4, False, "unsigned int")
    assert found.fields["cmd"].offset == 56


def test_a_text_that_is_no_format_is_refused() -> None:
    with pytest.raises(ProbeError, match=r"block_x.*cannot be understood"):
        formats.parse("block_x", "nothing of the kind")


def test_fields_are_taken_from_where_the_format_has_them() -> None:
    # GIVEN the same tracepoint of two kernels
    old, new = (
        bcc_source.source({"D": formats.parse("block_rq_issue", text)}, [], Filters(), SIZES, 2)
        for text in (ISSUE_5_10, ISSUE_6_18)
    )
    # WHEN programs are made THEN letters are read where they are, and a priority if there is one
    assert "*(u64 *)((char *)ctx + 32) << 0" in old
    assert "event.ioprio" not in old.partition("int bt_rq_issue")[2]
    assert "*(u16 *)((char *)ctx + 34) << 0" in new
    assert "event.ioprio = *(u16 *)((char *)ctx + 32);" in new
    assert "event.bytes = *(u32 *)((char *)ctx + 28);" in new


def test_bytes_come_from_sectors_where_the_format_has_none() -> None:
    text = bcc_source.source(
        {"R": form(("dev", 8, 4), ("sector", 16, 8), ("nr_sector", 24, 4), ("rwbs", 28, 8))},
        [],
        Filters(),
        SIZES,
        2,
    )
    assert "event.bytes = event.nr_sector << 9;" in text


def test_a_field_of_another_size_is_refused() -> None:
    # GIVEN a format in which a sector has a size that nothing fits
    odd = form(("dev", 8, 4), ("sector", 12, 16))
    # WHEN a program is made THEN tracepoint and field are named
    with pytest.raises(ProbeError, match="made_up: the field sector has 16 bytes at 12"):
        bcc_source.source({"d": odd}, [], Filters(), SIZES, 2)


def test_what_a_format_lacks_is_named() -> None:
    # GIVEN formats of all tracepoints, without a priority
    names = {p.tracepoint for p in PROBES}
    fields = ("dev", "sector", "nr_sector", "rwbs", "error", "old_dev", "old_sector")
    forms = {n: form(*((f, 8 * i, 8) for i, f in enumerate(fields, 1))) for n in names}
    # WHEN what is absent is asked for
    absent = bcc_source.absent([p.letter for p in PROBES], forms)
    # THEN it is fields of the records, pointers among them, and the priority
    for letter, missing in absent.items():
        assert set(missing) <= {f.name for f in BY_LETTER[letter].fields}
        assert len(missing) == len(set(missing))
    assert {"bio", "cgroup", "page", "part"} <= set(absent["Q"])
    assert {"rq", "bio", "tag", "sched_tag", "hctx", "ioprio"} <= set(absent["D"])
    assert bcc_source.lacks("X", forms["block_split"]) == ["new_sector"]


def test_filters_name_disks_and_sectors() -> None:
    # GIVEN a disk, and a partition of another
    devices = [DeviceFilter(7 << 20), DeviceFilter(8 << 20, 8 << 20 | 1, 2048, 4096)]
    # WHEN filters are made THEN the one is by its number, the other by its sectors too
    text = bcc_filters.source(devices, Filters())
    assert f"(event->dev == {7 << 20}U)" in text
    assert re.search(rf"event->dev == {8 << 20}U && .*2048ULL.*4096ULL", text)
    assert f"dev == {8 << 20 | 1}U" in text


@pytest.mark.parametrize(
    ("filters", "option"),
    [
        (Filters(pids=(1,)), "--pid"),
        (Filters(cgroups=("/",)), "--cgroup"),
        (Filters(flags=(("sync",),)), "--flags"),
        (Filters(min_bytes=1), "--min-size"),
        (Filters(ops=("drv_out",)), "--op drv_out"),
    ],
)
def test_filters_that_would_keep_halves_are_refused(filters: Filters, option: str) -> None:
    with pytest.raises(ProbeError, match=rf"cannot filter by {option}.*--backend core"):
        bcc_filters.check(filters)


@pytest.mark.parametrize(
    ("letters", "op", "flags"),
    [
        ("R", "READ", []),
        ("RAM", "READ", ["RAHEAD", "META"]),
        ("WS", "WRITE", ["SYNC"]),
        ("FWFSM", "WRITE", ["PREFLUSH", "FUA", "SYNC", "META"]),
        ("WFS", "WRITE", ["FUA", "SYNC"]),
        ("FF", "FLUSH", ["PREFLUSH"]),
        ("F", "FLUSH", []),
        ("FWS", "WRITE", ["PREFLUSH", "SYNC"]),
        ("DS", "DISCARD", ["SYNC"]),
        ("DE", "SECURE_ERASE", []),
        ("ZRA", "ZONE_RESET_ALL", []),
        ("ZAS", "ZONE_APPEND", ["SYNC"]),
        ("WZS", "WRITE_ZEROES", ["SYNC"]),
        ("NS", "WRITE_ZEROES", ["SYNC"]),
        ("FN", "WRITE_ZEROES", ["PREFLUSH"]),
        ("WSU", "WRITE", ["SYNC"]),
    ],
)
def test_letters(letters: str, op: str, flags: list[str]) -> None:
    assert opf_of(letters) == OPS[op] | sum(1 << FLAGS[name] for name in flags)


def _functions(*names: str) -> str:
    """Some of the made C text as a program for this machine."""
    issue = {"D": formats.parse("block_rq_issue", ISSUE_6_18)}
    text = bcc_source.source(issue, [], Filters(), SIZES, 2)
    numbers = "\n".join(re.findall(r"^#define BT_\w+ \d+$", text, re.MULTILINE))
    head = "typedef unsigned long long u64; typedef unsigned int u32; typedef int s32;\n"
    found = [head, numbers]
    for name in names:
        made = re.search(rf"^static inline[^\n]*(\n[^\n]*)?\b{name}\(.*?^}}$", text, re.M | re.S)
        assert made is not None, name
        found.append(re.sub(r"^static inline __attribute__\(\(always_inline\)\) ", "", made[0]))
    return "\n".join(found)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("clang") or shutil.which("cc")
    assert compiler is not None, "clang is what the BPF programs are compiled with"
    place = tmp_path_factory.mktemp("bcc")
    (place / "part.c").write_text(_functions("bt_opf", "bt_status"))
    subprocess.run(
        [compiler, "-w", "-shared", "-fPIC", "-O1", "-o", place / "part.so", place / "part.c"],
        check=True,
    )
    library = ctypes.CDLL(str(place / "part.so"))
    library.bt_opf.argtypes = (ctypes.c_uint64, ctypes.c_uint32)
    library.bt_opf.restype = ctypes.c_uint32
    return library


def test_the_programs_read_letters_as_python_does(compiled: ctypes.CDLL) -> None:
    # GIVEN every operation with every set of flags, with and without a flush before
    sets = [
        "".join(s) for n in range(5) for s in itertools.combinations("".join(RWBS_FLAGS) + "U", n)
    ]
    for start, op, flags in itertools.product(("", "F"), [*RWBS_OPS, "N"], sets):
        letters = start + op + flags
        # WHEN the kernel's side decodes it, with other bytes behind its end
        if len(letters) > 8:
            continue
        number = int.from_bytes(letters.encode().ljust(9, b"\0")[:8].ljust(8, b"x"), "little")
        # THEN both come to the same
        assert compiled.bt_opf(number, OPS["WRITE_ZEROES"]) == opf_of(letters), letters


def test_the_programs_tell_a_status_by_its_errno(compiled: ctypes.CDLL) -> None:
    assert [compiled.bt_status(-errno) for errno in ERRNO.values()] == list(ERRNO)
    assert compiled.bt_status(0) == 0
    assert compiled.bt_status(-4095) == -4095


def test_the_text_is_of_files_that_belong_to_the_package() -> None:
    names = {Path(str(file)).name for file in resources.files("bpf").iterdir()}
    assert {"records.h", "bcc_ring.h", "bcc.h"} <= names
