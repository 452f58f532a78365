# SPDX-License-Identifier: Apache-2.0
"""The bcc backend: when it is taken, its headers, and its C beside the same in Python."""

import ctypes
import itertools
import platform
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.probes import capability
from biotrail.recorder.probes.backend import ProbeConfig, make_probes
from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.probes.bcc import load as bcc_load
from biotrail.recorder.probes.bcc import source as bcc_source
from biotrail.recorder.probes.bcc.headers import Headers
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.file_ways import NO_FILES
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.maps.admission import DeviceFilter
from biotrail.recorder.probes.programs import PROBES
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema import formats
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.kernel_names import ERRNO, FLAGS, OPS, RWBS_FLAGS, RWBS_OPS, opf_of
from biotrail.recorder.schema.records import BY_LETTER

# Which backend is taken, and what is said where bcc cannot be.


@pytest.mark.parametrize(
    ("backend", "btf", "expected"),
    [
        ("auto", True, CoreProbes),
        ("auto", False, BccProbes),
        ("bcc", True, BccProbes),
        ("core", False, CoreProbes),
    ],
)
def test_auto_goes_by_the_kernels_types(
    backend: str, btf: bool, expected: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a kernel with or without BTF
    path = tmp_path / "vmlinux"
    if btf:
        path.touch()
    monkeypatch.setattr(capability, "BTF_PATH", path)
    # WHEN a backend is chosen THEN it is the one that fits, or the one asked for
    assert isinstance(make_probes(backend, ProbeConfig()), expected)


def test_what_a_backend_cannot_do_finds_nothing() -> None:
    # GIVEN the bcc backend, which has neither stacks, files, triggers nor own files
    probes = make_probes("bcc", ProbeConfig())
    assert probes.backend == "bcc"
    # WHEN a session calls what belongs to them THEN there is nothing, and no error
    assert probes.files == NO_FILES
    assert probes.triggered() == []
    assert probes.fresh_stacks() == {}
    probes.own_file(OwnFile(1, 1, None))
    # AND an unknown backend is refused
    with pytest.raises(ProbeError, match="choose one of auto, core, bcc"):
        make_probes("kprobe", ProbeConfig())


def test_missing_bcc_and_headers_have_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN a machine without bcc
    monkeypatch.setattr(bcc_child, "find_bcc", lambda: None)
    # WHEN it is needed THEN the package is named
    with pytest.raises(ProbeError, match="apt-get install python3-bpfcc"):
        bcc_load.require()
    # AND without headers likewise
    monkeypatch.setattr(bcc_child, "find_bcc", lambda: "/somewhere/bcc")
    monkeypatch.setattr(bcc_headers, "find", lambda: None)
    monkeypatch.setattr(bcc_headers, "offered", lambda names: {names[0]})
    with pytest.raises(ProbeError, match="apt-get install linux-headers-"):
        bcc_load.require()
    # AND doctor says the same
    checks = capability.bcc_report()
    assert not all(check.ok for check in checks)
    assert any("linux-headers-" in check.remedy for check in checks if not check.ok)
    assert not any(check.required for check in checks)
    # GIVEN no tracefs, and no place to mount it
    monkeypatch.setattr(tracefs, "PLACES", (tmp_path / "nowhere",))
    # WHEN it is needed THEN the remedy is the command
    with pytest.raises(ProbeError, match="mount -t tracefs tracefs"):
        tracefs.find()


def test_which_of_several_packages_named_bcc_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN two packages of the name, the second of them the one with the library
    for name, library in (("first", False), ("second", True)):
        (tmp_path / name / "bcc").mkdir(parents=True)
        (tmp_path / name / "bcc" / "__init__.py").write_text("WHO = __name__\n")
        if library:
            (tmp_path / name / "bcc" / "libbcc.py").touch()
    places = tuple(str(tmp_path / name) for name in ("first", "second"))
    monkeypatch.setattr(bcc_child, "_PLACES", places)
    # WHEN bcc is looked for THEN it is the one
    assert bcc_child.find_bcc() == str(tmp_path / "second" / "bcc")
    # GIVEN bcc for three versions of Python, in directories that sort otherwise as text
    for place in ("lib/python3.9", "lib/python3.11", "lib64/python3.10"):
        package = tmp_path / place / "site-packages" / "bcc"
        package.mkdir(parents=True)
        (package / "libbcc.py").touch()
    monkeypatch.setattr(bcc_child, "_PLACES", (f"{tmp_path}/lib*/python3*/*-packages",))
    # WHEN bcc is looked for THEN it is that of the newest
    expected = tmp_path / "lib" / "python3.11" / "site-packages" / "bcc"
    assert bcc_child.find_bcc() == str(expected)


def test_what_went_wrong_in_bcc_is_told_in_a_few_lines() -> None:
    # GIVEN what bcc prints
    said = "warning: x\n" * 50 + "/virtual/main.c:3:1: error: unknown type name 'foo'\n"
    # WHEN it failed THEN the lines that tell are quoted
    error = bcc_load.failure("Exception: Failed to compile BPF module <text>", said)
    assert "unknown type name" in str(error)
    assert str(error).count("\n") < 10
    # AND rings that are too big are told apart, so that smaller ones are tried
    too_big = bcc_load.failure("Exception: x", "could not open bpf map: Argument list too long")
    assert isinstance(too_big, bcc_load.TooBigError)
    # AND a bcc that this Python cannot import names both
    assert "does not work with Python" in str(bcc_load.failure("ImportError: no", ""))


# Where bcc's headers are taken from, and what is said where there are none.

COMMON, MADE = "include/linux/kconfig.h", "include/generated/autoconf.h"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /lib/modules, nothing named, and no headers from the kernel itself."""
    monkeypatch.setattr(bcc_headers, "_MODULES", tmp_path / "modules")
    monkeypatch.setattr(bcc_headers, "_KHEADERS", tmp_path / "none")
    monkeypatch.delenv(bcc_headers.NAMED, raising=False)
    (tmp_path / "modules").mkdir()
    return tmp_path / "modules"


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def debian(modules: Path, release: str) -> tuple[Path, Path]:
    """The package linux-headers-RELEASE and its common part, as Debian unpacks them."""
    source = modules.parent / "src"
    version, _, flavour = release.rpartition("-")
    build = source / f"linux-headers-{version}-{flavour}"
    common = source / f"linux-headers-{version}-common"
    touch(build / MADE)
    (build / "arch/x86/include/generated/uapi").mkdir(parents=True)
    touch(common / COMMON)
    (build / "Makefile").write_text(f"include {common}/Makefile\n")
    (modules / release).mkdir()
    (modules / release / "build").symlink_to(build)
    (modules / release / "source").symlink_to(common)
    return common, build


def test_the_running_kernels_headers_come_first(modules: Path) -> None:
    # GIVEN headers of the running kernel and of another one
    debian(modules, "99.1.0-1-amd64")
    debian(modules, platform.release())
    # WHEN they are looked for THEN the running kernel's are found, which bcc finds by itself
    found = bcc_headers.find()
    assert found == modules / platform.release() / "build"
    assert bcc_headers.resolve(found) == Headers(None)


def test_another_kernels_two_directories_are_brought_together(modules: Path) -> None:
    # GIVEN headers of two other kernels alone, as Debian 12 has them
    debian(modules, "6.1.0-9-amd64")
    common, _ = debian(modules, "6.1.0-50-amd64")
    # WHEN they are looked for THEN it is the newest's, whose second half goes by flags
    found = bcc_headers.find()
    assert found == modules / "6.1.0-50-amd64/build"
    headers = bcc_headers.resolve(found)
    assert headers.directory == common
    assert f"-I{found}/include" in headers.flags()
    assert f"-I{found}/arch/x86/include/generated/uapi" in headers.flags()


@pytest.mark.parametrize("which", ["build", "common", "release", "whole"])
def test_every_directory_that_users_name_will_do(
    modules: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    # GIVEN a directory that is one half, has links to both, or holds all
    common, build = debian(modules, "6.1.0-50-amd64")
    whole = modules.parent / "whole"
    touch(whole / COMMON)
    touch(whole / MADE)
    places = {"build": build, "common": common, "release": modules / "6.1.0-50-amd64"}
    place = {**places, "whole": whole}[which]
    # WHEN it is named
    monkeypatch.setenv(bcc_headers.NAMED, str(place))
    found = bcc_headers.find()
    assert found == place
    headers = bcc_headers.resolve(found)
    # THEN bcc is told of both halves
    assert headers.directory == (whole if which == "whole" else common)
    assert bool(headers.flags()) == (which != "whole")


def test_of_several_flavours_the_running_kernels_is_taken(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a common directory with headers of three flavours
    for flavour in ("amd64", "cloud-amd64", "rt-amd64"):
        build = modules.parent / f"src/linux-headers-6.1.0-50-{flavour}"
        touch(build / MADE)
        common = modules.parent / "src/linux-headers-6.1.0-50-common"
        (build / "Makefile").write_text(f"include {common}/Makefile\n")
    touch(common / COMMON)
    # WHEN the common directory is named, on a kernel of the first flavour, or of none of them
    for release, expected in (("6.1.0-50-amd64", "amd64"), ("6.2.0-1-amd64", "rt-amd64")):
        monkeypatch.setattr(platform, "release", lambda release=release: release)
        headers = bcc_headers.resolve(common)
        # THEN the running kernel's are taken, else the last by name
        assert headers.generated is not None
        assert headers.generated.name == f"linux-headers-6.1.0-50-{expected}"


def test_what_is_named_and_no_use_is_told(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a directory that does not exist WHEN it is named THEN nothing else is taken for it
    debian(modules, "6.1.0-50-amd64")
    monkeypatch.setenv(bcc_headers.NAMED, "/no/such")
    assert bcc_headers.find() is None
    assert "/no/such" in bcc_headers.missing()
    assert "unset it" in bcc_headers.missing()
    # AND one without headers is refused by its name
    with pytest.raises(ProbeError, match=f"{modules} holds no whole headers .*unset the"):
        bcc_headers.resolve(modules)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ({0, 1}, f"apt-get install linux-headers-{platform.release()}"),
        ({1, 2}, r"apt-get install linux-headers-\w+ \(no package has those of kernel"),
        ({2}, r"apt-get install linux-headers-generic \("),
        (set(), "apt knows no package"),
        (None, "your system's package"),
    ],
)
def test_the_remedy_names_a_package_that_exists(
    modules: Path, monkeypatch: pytest.MonkeyPatch, offered: set[int] | None, expected: str
) -> None:
    # GIVEN a system whose apt knows some packages, or none, or has no apt
    assert not bcc_headers.offered(["linux-headers-no-such-kernel"])

    def known(names: list[str]) -> set[str] | None:
        return None if offered is None else {names[number] for number in offered}

    monkeypatch.setattr(bcc_headers, "offered", known)
    # WHEN there are no headers THEN the remedy is one of those, or says that there is none
    assert bcc_headers.find() is None
    assert re.search(expected, bcc_headers.missing())


# What the bcc backend makes of tracepoint formats, and its C beside the same in Python.

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
    # AND a text that is none is refused
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
    # AND bytes come from sectors where the format has none
    text = bcc_source.source(
        {"R": form(("dev", 8, 4), ("sector", 16, 8), ("nr_sector", 24, 4), ("rwbs", 28, 8))},
        [],
        Filters(),
        SIZES,
        2,
    )
    assert "event.bytes = event.nr_sector << 9;" in text
    # GIVEN a format in which a sector has a size that nothing fits
    odd = form(("dev", 8, 4), ("sector", 12, 16))
    # WHEN a program is made THEN tracepoint and field are named
    with pytest.raises(ProbeError, match="made_up: the field sector has 16 bytes at 12"):
        bcc_source.source({"d": odd}, [], Filters(), SIZES, 2)


def test_filters_name_disks_and_sectors() -> None:
    # GIVEN a disk, and a partition of another
    devices = [DeviceFilter(7 << 20), DeviceFilter(8 << 20, 8 << 20 | 1, 2048, 4096)]
    # WHEN filters are made THEN the one is by its number, the other by its sectors too
    text = bcc_source.filter_text(devices, Filters())
    assert f"(event->dev == {7 << 20}U)" in text
    assert re.search(rf"event->dev == {8 << 20}U && .*2048ULL.*4096ULL", text)
    assert f"dev == {8 << 20 | 1}U" in text
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
        bcc_source.check_filters(filters)


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


def test_the_programs_read_letters_and_errors_as_python_does(compiled: ctypes.CDLL) -> None:
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
    assert [compiled.bt_status(-errno) for errno in ERRNO.values()] == list(ERRNO)
    assert compiled.bt_status(0) == 0
    assert compiled.bt_status(-4095) == -4095
    # AND the text is of files that belong to the package
    names = {Path(str(file)).name for file in resources.files("bpf").iterdir()}
    assert {"records.h", "bcc_ring.h", "bcc.h"} <= names
