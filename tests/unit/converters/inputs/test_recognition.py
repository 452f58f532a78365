# SPDX-License-Identifier: Apache-2.0
"""What stands before the first event does not matter; of what nobody knows the kind is said."""

import gzip
import io
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

import biotrail
from biotrail.converters.analysis.live.live import LiveTrace
from biotrail.converters.inputs import backlog
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.converters.inputs.ftrace.text import TextSource
from biotrail.converters.inputs.log import LogSource
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet.locations import (
    LocationError,
    expand,
    is_url,
    locate,
    open_url,
    reason,
)
from biotrail.converters.inputs.series import SeriesSource
from biotrail.converters.inputs.unpacking import (
    RATIO,
    SLACK,
    UNPACKING_ERRORS,
    Allowance,
    beginning,
    unpacked,
)
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.schema.errors import LogFormatError, LogNotFoundError
from tests.support import blktrace_records as blktrace
from tests.support import paths, perf_files, perfetto_check, system_traces, trace_dat
from tests.support.cli_runner import Cli
from tests.support.hosts_logs import LATENCY, SECOND, Machine
from tests.support.light_logs import Light, write_log
from tests.support.paths import DATA
from tests.support.perf_files import Perf
from tests.support.read_cost import Counting, check, counted
from tests.support.sources import Pipe
from tests.support.system_traces import SystemTrace
from tests.support.text_layouts import COMPLETE, ISSUE

EVENTS = (
    f"dd 500 [000]    10.000000: block:{ISSUE}\nswapper 0 [000]    10.000200: block:{COMPLETE}\n"
)
HEADER = "# ========\n# captured on    : Wed Jan  1 00:00:00 2025\n" + "".join(
    f"# event : name = block:event_{i}, , id = {{ {i}, {i} }}, type = 2, size = 128, config = "
    "0x838, { sample_period, sample_freq } = 1, sample_type = IP|TID|TIME|CPU|PERIOD|RAW|"
    "IDENTIFIER, read_format = ID|LOST, disabled = 1, inherit = 1, sample_id_all = 1\n"
    for i in range(18)
)
SAMPLES = "".join(
    f"python 600 [000]    9.{i:06d}:     250000               cpu-clock: \n"
    "\t          1af848 main+0x28 (/usr/bin/python3)\n\n"
    for i in range(100)
)
PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Android System Trace</title>\n"
    + "<script>var a = 1;</script>\n" * 300
)


@pytest.mark.parametrize(
    "before", [HEADER, SAMPLES, PAGE, "\n" * 5000, "noise\n" * 5000, "# a comment\n" * 100_000]
)
@pytest.mark.parametrize("form", ["file", "pipe", "gzip"])
def test_text_is_read_whatever_stands_before(before: str, form: str) -> None:
    # GIVEN more than 4,096 bytes of something else before the events
    data = (before + EVENTS).encode()
    stream = {
        "file": io.BytesIO(data),
        "pipe": Pipe(data),
        "gzip": io.BytesIO(gzip.compress(data)),
    }[form]
    # WHEN it is read / THEN there is the I/O
    [bio] = biotrail.open(stream).bios.to_pylist()
    assert bio["latency_ns"] == 200_000


def test_other_events_are_passed_over_by_their_names() -> None:
    # GIVEN samples of another event, printed with their period, before the block events
    source = open_source(io.BytesIO((SAMPLES + EVENTS).encode()))
    # WHEN they are read / THEN they are counted by name
    assert isinstance(source, TextSource)
    list(source.parts())
    assert source.passed_over == {"cpu-clock": 100}


PACKED = zlib.compress(b"# tracer: nop\n" * 1000)
UNKNOWN = {
    "bzip2": (b"BZh91AY&SY" + bytes(range(256)), "bunzip2"),
    "xz": (b"\xfd7zXZ\0" + bytes(range(256)), "unxz"),
    "zip": (b"PK\x03\x04" + bytes(range(256)), "unzip"),
    "gzip of something else": (gzip.compress(bytes(range(256))), "gunzip"),
    "UTF-16": ("\ufeff# tracer: nop\n".encode("utf-16-le"), "iconv -f UTF-16"),
    "UTF-16, big": ("\ufeff# tracer: nop\n".encode("utf-16-be"), "iconv -f UTF-16"),
    "atrace -z": (b"capturing trace... done\nTRACE:\n" + PACKED, "trace without -z"),
    "perf trace": (
        b"     0.037 ( 0.011 ms): true/11999 brk() = 0x564851c41000\n" * 50,
        "perf record -a -e 'block:*'",
    ),
    "a viewer's page": (
        b"<!DOCTYPE html>\n<script id=viewer-data type='application/json'>\nH4sIAAAAAAAA\n",
        "the trace that the page was made of",
    ),
    "a web page": (b"<!DOCTYPE html>\n<html><body>Hello</body></html>\n", "the trace itself"),
    "JSON": (b'{"traceEvents": []}\n', "JSON"),
    "babeltrace": (
        b"[12:34:56.000000000] (+?.?????????) host sched_switch: { cpu_id = 0 }, { }\n",
        "the directory of LTTng's trace",
    ),
    "biosnoop": (b"TIME(s)     COMM           PID    DISK      T SECTOR\n", "biotrail record"),
    "ELF": (b"\x7fELF\x02\x01\x01" + bytes(range(256)), "ELF"),
    "a text": (b"hello: world\n" * 10, "begins with b'hello: world"),
    "zeros": (bytes(8192), "zeros"),
    "anything": (bytes(range(256)) * 20, "begins with"),
}
"""By kind: a file, and what its refusal says."""


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("pipe", [False, True])
def test_a_file_that_nobody_knows_is_named(kind: str, pipe: bool) -> None:
    # GIVEN a file of another kind
    data, words = UNKNOWN[kind]
    # WHEN it is read / THEN the error says what it is, what to do, and what is read
    with pytest.raises(LogFormatError) as error:
        list(open_source(Pipe(data) if pipe else io.BytesIO(data)).parts())
    said = str(error.value)
    assert words in said
    assert "perf.data, trace.dat, blktrace's files" in said
    assert "docs/inputs.md" in said
    assert "\n" not in said


def test_the_command_line_says_it_with_status_1(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a file of another kind
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    # WHEN it is given to a command / THEN there is one line, with its path
    done = cli("report", path)
    assert done.status == 1
    assert done.err.startswith(f"biotrail: error: {path}: is none of what biotrail reads")


def test_a_mark_of_utf_8_is_no_part_of_the_first_line() -> None:
    # GIVEN a text that an editor began with the mark of UTF-8
    whole = (DATA / "ftrace" / "small.trace.txt").read_bytes()
    # WHEN it is read / THEN all of its events are there
    source = open_source(io.BytesIO(b"\xef\xbb\xbf" + whole.replace(b"\n", b"\r\n")))
    assert sum(len(part.events) for part in source.parts()) == 572
    assert not source.problems


# URLs as file systems and paths, and errors in few words.


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("s3://bucket/key", True),
        ("file:///tmp/x", True),
        ("a/b.parquet", False),
        ("c:x", False),
        ("-", False),
        (Path("s3://x"), False),
        (b"s3://x", False),
    ],
)
def test_what_is_a_url(given: object, wanted: bool) -> None:
    # GIVEN / WHEN / THEN
    assert is_url(given) is wanted


def test_files_of_a_folder_and_by_wildcards(tmp_path: Path) -> None:
    # GIVEN folders with archives, and names that URLs would escape
    for name in ("a/x 1.parquet", "a/b/y%20.parquet", "a/z.txt", "c/x2.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    root = f"file://{tmp_path}"
    # WHEN folders and wildcards are expanded
    # THEN a folder is all archives below it, a wildcard stays in its part, ** does not
    for given, wanted in {
        "": ["a/b/y%20.parquet", "a/x 1.parquet", "c/x2.parquet"],
        "/a": ["a/b/y%20.parquet", "a/x 1.parquet"],
        "/*/x*.parquet": ["a/x 1.parquet", "c/x2.parquet"],
        "/**/[xy]*.parquet": ["a/b/y%20.parquet", "a/x 1.parquet", "c/x2.parquet"],
        "/a/*": ["a/x 1.parquet", "a/z.txt"],
        "/a/q*": [],
        "/nowhere.parquet": ["nowhere.parquet"],
    }.items():
        assert expand(root + given) == [f"{root}/{name}" for name in wanted]
    # AND what is found can be opened
    with open_url(expand(root)[0]) as stream:
        assert stream.read() == b"a/b/y%20.parquet"


def test_a_child_keeps_the_options() -> None:
    # GIVEN a URL with options and a slash at its end
    place = locate("s3://bucket/folder/?endpoint_override=127.0.0.1:1&scheme=http&region=x")
    # WHEN a child is asked for / THEN its URL opens the same storage
    child = place.child("a/b.parquet")
    assert child.path == "bucket/folder/a/b.parquet"
    options = "endpoint_override=127.0.0.1:1&scheme=http&region=x"
    assert child.url == f"s3://bucket/folder/a/b.parquet?{options}"


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    # GIVEN a URL at which there is nothing, and one of no storage
    # WHEN they are opened THEN the errors say which
    with pytest.raises(LogNotFoundError, match="nothing"):
        open_url(f"file://{tmp_path}/nothing.parquet")
    with pytest.raises(LocationError, match="names no bucket"):
        locate("s3:///x")


def test_a_public_bucket_needs_no_user_and_others_no_password() -> None:
    # GIVEN a bucket that anyone may read  WHEN it is opened  THEN its path has no user
    assert locate("gs://anonymous@bucket/a/b.parquet").path == "bucket/a/b.parquet"
    # AND another user, or a password, is refused
    for url in ("gs://someone@bucket/a", "s3://key:secret@bucket/a", "s3://anonymous@bucket/a"):
        with pytest.raises(LocationError, match="password"):
            locate(url)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of "
            "Could not create a OAuth2 access token to authenticate the request.",
            "no credentials of Google's storage",
        ),
        (
            "Check failed: AuthenticationException: Failed to get token from "
            "DefaultAzureCredential",
            "no credentials of Azure's storage",
        ),
        ("Unable to load libjvm", "HDFS needs Java"),
    ],
)
def test_missing_credentials_are_named(message: str, words: str) -> None:
    # GIVEN a message of a storage WHEN it is explained THEN it says what to set
    assert reason(OSError(message)).startswith(words)


def test_long_errors_become_short() -> None:
    # GIVEN messages as pyarrow has them
    # WHEN they are shortened THEN a known one says what to do, another loses its request's id
    known = "When x for key 'k' in bucket 'b': AWS Error NO_SUCH_BUCKET during PutObject: gone"
    assert reason(OSError(known)) == "there is no such bucket: make it, or give another one"
    assert (
        reason(OSError("When y: AWS Error SLOW (Request ID: 12)\nmore")) == "When y: AWS Error SLOW"
    )
    assert reason(OSError(28, "No space left")).startswith("no space left on the device")
    assert reason(OSError(5, "Input/output error")) == "Input/output error"


# Compressed recordings: members, frames, damage; recognised by any block; bounded in cost.

MIB = 1 << 20
CONTENT = b"".join(b"%d 223490 + 8 [kjournald]\n" % (i * 7919 % 100_003) for i in range(40_000))
SKIPPED = b"\x51\x2a\x4d\x18\x04\0\0\0abcd"


def zstd(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


def streamed(data: bytes) -> bytes:
    """As `zstd` compresses a pipe: without the content's size."""
    made = zstandard.ZstdCompressor().compressobj()
    return made.compress(data) + made.flush()


def read(data: bytes, size: int = 100_000) -> tuple[bytes, str, Allowance]:
    """(all that can be read, why not more, the allowance)."""
    allowance = Allowance()
    stream = unpacked(io.BytesIO(data), data[:4], allowance)
    found = b""
    try:
        while piece := stream.read(size):
            found += piece
    except UNPACKING_ERRORS as error:
        return found, str(error), allowance
    return found, "", allowance


WHOLE = {
    "plain": (CONTENT, 1),
    "gzip": (gzip.compress(CONTENT), 1),
    "gzip, two members and padding": (gzip.compress(CONTENT) * 2 + bytes(70_000), 2),
    "zstd": (zstd(CONTENT), 1),
    "zstd of a pipe": (streamed(CONTENT), 1),
    "zstd, frames of all sorts": (
        zstd(CONTENT, write_checksum=True) + SKIPPED + streamed(CONTENT) + zstd(CONTENT),
        3,
    ),
    "zstd, empty frames": (zstd(b"") + zstd(CONTENT) + streamed(b""), 1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_members_and_frames_are_read(name: str) -> None:
    # GIVEN a file of one or several
    data, times = WHOLE[name]
    # WHEN it is read, in small and in large pieces
    for size in (1000, 100_000, 10 * MIB):
        found, why, allowance = read(data, size)
        # THEN all is there
        assert found == CONTENT * times
        assert (why, allowance.stored) == ("", len(data))


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(CONTENT)[: len(gzip.compress(CONTENT)) // 2],
        gzip.compress(CONTENT)[:-3],
        gzip.compress(CONTENT) + b"more",
        zstd(CONTENT)[: len(zstd(CONTENT)) // 2],
        streamed(CONTENT)[:-1],
        zstd(CONTENT, write_checksum=True)[:-2],
        zstd(CONTENT) + b"more",
        zstd(CONTENT)[:20_000] + b"\xff" * 100 + zstd(CONTENT)[20_100:],
        b"\x28\xb5\x2f\xfd",
        b"\x1f\x8b",
    ],
    ids=range(10),  # compressed bytes differ from process to process
)
def test_damage_is_told_behind_what_can_be_read(data: bytes) -> None:
    # GIVEN a file that is cut off or damaged
    # WHEN it is read / THEN what is before the damage is there, and why there is no more
    found, why, _ = read(data)
    assert CONTENT.startswith(found)
    assert why


def test_what_unpacks_to_nothing_is_given_up() -> None:
    # GIVEN 100 times 10 MiB of zeros, by gzip and zstd
    for pack in (gzip.compress, zstd):
        # WHEN they are read
        found, why, allowance = read(pack(bytes(10 * MIB)) * 100)
        # THEN it ends before all is unpacked, and without any one large piece
        assert "with little of use" in why
        assert len(found) <= SLACK + RATIO * allowance.stored


def test_a_beginning_needs_zstd_s_first_block() -> None:
    # GIVEN the first bytes of a file
    packed = zstd(CONTENT)
    # WHEN the first block ends in them or not / THEN the content's first bytes are known, or none
    assert beginning(packed, 1000) == CONTENT[:1000]
    assert beginning(packed[:4096], 1000) == b""
    assert beginning(gzip.compress(CONTENT)[:500], 100) == CONTENT[:100]
    assert beginning(CONTENT[:500], 100) == CONTENT[:100]


def packet(content: bytes, number: int = 127) -> bytes:
    """A packet of Perfetto's with one field of bytes, by default one that nobody knows."""
    field = system_traces.varint(number << 3 | 2) + system_traces.varint(len(content)) + content
    return b"\x0a" + system_traces.varint(len(field)) + field


READS = system_traces.reads().bytes()
INCOMPRESSIBLE = packet(random.Random(2).randbytes(200_000))


class SlowPipe(Pipe):
    """A pipe whose bytes come a few at a time."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(size or 0, 3000))


@pytest.mark.parametrize("pack", [gzip.compress, zstd, streamed])
def test_a_trace_is_recognised_whatever_its_first_block(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    # GIVEN a trace whose first block is as long as blocks get
    data = pack(INCOMPRESSIBLE + READS)
    path = tmp_path / "x"
    path.write_bytes(data)
    for given in (path, io.BytesIO(data), SlowPipe(data)):
        # WHEN it is opened by its path, as a stream, and from a pipe
        source = open_source(given)
        # THEN it is read as the same trace is that is not compressed
        events = sum(len(part.events) for part in source.parts())
        plain = open_source(io.BytesIO(READS))
        assert events == sum(len(part.events) for part in plain.parts())
        assert source.problems == []


USELESS = packet(bytes(10 * MIB))


def perfetto_packed() -> bytes:
    """A trace with compressed packets in it that hold useless ones."""
    inner = packet(zlib.compress(USELESS + packet(bytes(4 * MIB))), number=50)
    return READS + inner * 10


def perf_compressed() -> bytes:
    perf = perf_files.Perf()
    records = [*perf.io(10**12, 8), perf.round()]
    return perf.file(perf.compressed([b"".join(records) + perf.record(1, bytes(60_000)) * 2000]))


def trace_dat_of_zeros() -> bytes:
    made = trace_dat.contents_of(paths.DATA / "ftrace" / "small.dat")
    cpus = {0: next(iter(made.buffers[0].cpus.values())) + bytes(100 * MIB)}
    buffers = [trace_dat.Pages("", "mono", cpus)]
    return trace_dat.trace_dat(made.changed(version=7, codec="zstd", buffers=buffers))


def printed(name: str) -> bytes:
    return (paths.DATA / name).read_bytes()


BOMBS: dict[str, Callable[[], bytes]] = {
    "perfetto-gz": lambda: gzip.compress(READS, 1) + gzip.compress(USELESS, 1) * 20,
    "perfetto-zst": lambda: zstd(READS) + zstd(USELESS) * 20,
    "perfetto-packed": perfetto_packed,
    "perfetto-packed-gz": lambda: gzip.compress(perfetto_packed()),
    "perf": perf_compressed,
    "trace-dat": trace_dat_of_zeros,
    "text-gz": lambda: (
        gzip.compress(printed("ftrace/small.trace.txt")) + gzip.compress(b"\n" * (10 * MIB)) * 10
    ),
    "blkparse-zst": lambda: zstd(printed("blktrace/loop1.txt")) + zstd(b"\n" * (10 * MIB)) * 10,
}


@pytest.mark.parametrize("name", BOMBS)
def test_cost_is_bounded_by_what_is_used(name: str) -> None:
    # GIVEN a small recording that unpacks to more than 80 MiB of nothing
    data = BOMBS[name]()
    # WHEN it is read
    with counted() as spent:
        try:
            source = open_source(Counting(data, spent))
            events = sum(len(part.events) for part in source.parts())
        except LogFormatError as error:
            assert "with little of use" in str(error)
        else:
            # THEN what is before that is there, and it is told
            assert events > 0
            assert any("with little of use" in problem for problem in source.problems)
    # THEN a part of it was unpacked
    check(data, spent)
    assert 0 < spent.unpacked < 80 * MIB


# A recording without block events is refused in the same words, whatever the format.

SCHED = (
    "# tracer: nop\n#\n"
    "              sh-500     [000] d..2.    10.000000: sched_switch: prev_comm=sh prev_pid=500 "
    "prev_prio=120 prev_state=S ==> next_comm=dd next_pid=501 next_prio=120\n"
    "              dd-501     [000] d..2.    10.000200: sched_switch: prev_comm=dd prev_pid=501 "
    "prev_prio=120 prev_state=S ==> next_comm=sh next_pid=500 next_prio=120\n"
)
ROUND = Perf().record(68, b"")
"""PERF_RECORD_FINISHED_ROUND."""


def _trace_dat(version: int) -> bytes:
    contents = trace_dat.contents_of(DATA / "ftrace" / "small.dat")
    others = [text.replace("name: block_", "name: other_") for text in contents.formats["block"]]
    formats = contents.formats | {"block": others}
    return trace_dat.trace_dat(contents.changed(formats=formats, version=version, codec="none"))


def _perfetto() -> bytes:
    trace = SystemTrace()
    trace.events(0, [(5, 42, "sched_waking", {"comm": "a", "pid": 1})])
    return trace.bytes()


def _blktrace() -> bytes:
    return blktrace.record(blktrace.MESSAGE, 5, pdu=b"throttled")


RECORDINGS = {
    "text": (SCHED.encode(), "trace-cmd record -C mono -e block", "sched_switch 2"),
    "trace.dat, version 6": (_trace_dat(6), "trace-cmd record -C mono -e block", "other_"),
    "trace.dat, version 7": (_trace_dat(7), "trace-cmd record -C mono -e block", "other_"),
    "perf, of others": (
        Perf(names=("sched_switch",)).file([ROUND]),
        "perf record -a -e 'block:*'",
        "sched_switch",
    ),
    "perf, while nothing happened": (Perf().file([ROUND]), "perf record -a -e 'block:*'", ""),
    "perf, from a pipe": (Perf().pipe([ROUND]), "perf record -a -e 'block:*'", ""),
    "Perfetto": (_perfetto(), 'ftrace_events: "block/*"', ""),
    "blktrace": (_blktrace(), "blktrace -d DEVICE", ""),
}
"""By format: the recording, how block events are recorded, and what it has instead."""


@pytest.mark.parametrize("form", RECORDINGS)
def test_it_is_refused_in_the_same_words(form: str) -> None:
    # GIVEN a valid recording without block events
    data, record, held = RECORDINGS[form]
    # WHEN it is read / THEN the error says so, what it has, and how they are recorded
    with pytest.raises(LogFormatError) as error:
        list(open_source(io.BytesIO(data)).parts())
    said = str(error.value)
    assert "the stream: has no block events" in said
    assert "so there is no I/O in it: record them with" in said
    assert record in said
    assert held in said
    assert "docs/inputs.md" in said


@pytest.mark.parametrize("form", ["text", "perf, while nothing happened", "blktrace"])
@pytest.mark.parametrize(
    "command",
    [
        ("info",),
        ("info", "--json"),
        ("report",),
        ("report", "--json"),
        ("report", "--html", "page.html"),
        ("slow",),
        ("hist",),
        ("dump",),
        ("export", "-o", "out.parquet"),
        ("convert", "-o", "out.pftrace"),
        ("convert", "-o", "out.blktrace"),
        ("export", "-o", "out.csv"),
        ("archive", "-o", "out.parquet"),
    ],
    ids=" ".join,
)
def test_no_command_ends_well(
    form: str, command: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recording without block events
    monkeypatch.chdir(tmp_path)
    Path("recording").write_bytes(RECORDINGS[form][0])
    # WHEN a command reads it / THEN it says so, with status 1, and leaves nothing
    done = cli(command[0], "recording", *command[1:])
    assert done.status == 1, done
    assert "recording: has no block events" in done.err
    assert done.out.strip() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


def test_one_of_several_is_named(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a recording with I/O, and one without block events
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes((DATA / "ftrace" / "small.trace.txt").read_bytes())
    other.write_text(SCHED)
    # WHEN both are asked for / THEN the one without is named
    for command in ("report", "diff"):
        done = cli(command, one, other)
        assert done.status == 1
        assert f"{other}: has no block events" in done.err


def test_where_all_is_damaged_that_is_said() -> None:
    # GIVEN a text whose lines of block events are all broken
    lines = (DATA / "ftrace" / "small.trace.txt").read_bytes().splitlines()
    text = b"\n".join(line[:75] for line in lines if b"block_rq_issue" in line)
    # WHEN it is read / THEN it is no success
    with pytest.raises(LogFormatError, match="lines of block events is understood"):
        list(open_source(io.BytesIO(text + b"\n")).parts())


# The files of a rotated recording, read as the one log that they are.

SPAN = (0, SECOND)
EVERY = SECOND // 4
BORDERS = [EVERY, 2 * EVERY, 3 * EVERY]
BIOS = sorted([*range(1000, SECOND, 7_000_000), *(border - LATENCY // 2 for border in BORDERS)])
DB1 = Machine("db1")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The first has no events, the others a quarter of a second each; a bio at each border."""
    return DB1.write_rotated(tmp_path / "r.biotrail", BIOS, span=SPAN)


def slices(path):
    """(start, end, arguments) of all bios."""
    found = perfetto_check.read(path.read_bytes()).slices("bio")
    return [(s.start, s.end, s.args) for s in found]


def test_files_in_any_order_are_one_log(cli, files, tmp_path):
    # GIVEN one log of a recording, and its files, given in another order
    whole = DB1.write(tmp_path / "whole.biotrail", BIOS, span=SPAN)
    shuffled = random.Random(1).sample(files, len(files))
    assert shuffled != files
    # WHEN both are converted
    cli("convert", whole)
    done = cli("convert", *shuffled, "-o", tmp_path / "all.pftrace")
    # THEN the same bios are there, those at borders whole and once, and nothing is missing
    found = slices(tmp_path / "all.pftrace")
    assert found == slices(whole.with_suffix(".pftrace"))
    assert len(found) == len(BIOS)
    assert {args["certainty"] for _, _, args in found} == {"exact"}
    assert f"{len(BIOS)} bios: {len(BIOS)} exact" in done.out
    assert "nothing is missing" in done.out
    # AND each file alone shows those at its borders as cut
    cli("convert", files[2])
    alone = slices(files[2].with_suffix(".pftrace"))
    assert sum(args["certainty"] == "incomplete" for _, _, args in alone) == 2


def test_the_output_is_named_after_the_first_file_in_every_format(cli, files, tmp_path):
    # GIVEN files of a recording / WHEN they are converted without a name / THEN it is the first's
    assert cli("convert", *files[::-1]).status == 0
    assert files[0].with_suffix(".pftrace").exists()
    # AND written for blkparse all events are there
    done = cli("convert", *files, "-o", tmp_path / "r.blktrace")
    assert done.status == 0, done.err
    assert f"{2 * len(BIOS)} records" in done.out


def test_a_missing_file_is_said(cli, files, tmp_path):
    # GIVEN files of which one in the midst is not there / WHEN the others are converted
    left = [files[1], files[4]]
    done = cli("convert", *left, "-o", tmp_path / "gap.pftrace")
    # THEN that is said, the time between is marked, and what was in flight is not called whole
    assert "files 3 to 4 of the recording" in done.out
    trace = perfetto_check.read((tmp_path / "gap.pftrace").read_bytes())
    (loss,) = trace.slices("loss")
    assert loss.start <= DB1.monotonic(EVERY) + 1000
    assert loss.end >= DB1.monotonic(3 * EVERY) - LATENCY
    cut = [s for s in trace.slices("bio") if s.args["certainty"] != "exact"]
    assert len(cut) == 2
    assert len(trace.slices("bio")) == sum(at < EVERY or at + LATENCY >= 3 * EVERY for at in BIOS)


def test_a_rotated_recording_beside_another_host(cli, files, tmp_path):
    # GIVEN a rotated recording, and another host's log / WHEN all files are converted together
    other = Machine("db2", "2" * 32, seed=1).write(tmp_path / "db2.biotrail", BIOS, span=SPAN)
    done = cli("convert", files[3], other, *files[:3], files[4], "-o", tmp_path / "both.pftrace")
    # THEN it is one of two recordings there
    assert "2 recordings on one timeline" in done.out
    trace = perfetto_check.read((tmp_path / "both.pftrace").read_bytes())
    assert [s.args["certainty"] for s in trace.slices("bio")] == ["exact"] * 2 * len(BIOS)


def test_a_series_is_of_one_recording(files, tmp_path):
    # GIVEN files of two recordings / WHEN they are taken as one / THEN they are refused
    other = DB1.write_rotated(tmp_path / "s.biotrail", BIOS, span=SPAN)
    with pytest.raises(LogFormatError, match="two recordings"):
        SeriesSource([(str(path), LogSource(path)) for path in (files[0], other[1])])


def test_its_account_is_that_of_all_files(files):
    # GIVEN files of a recording / WHEN they are read as one
    trace = Trace(SeriesSource([(str(path), LogSource(path)) for path in files]))
    reached: list[int] = []
    windows = list(trace.lifecycles(on_progress=reached.append))
    # THEN events, size, end and progress are those of all
    assert trace.account.total == 2 * len(BIOS)
    assert sum(len(window.bios) for window in windows) == len(BIOS)
    assert trace.reader.size == sum(path.stat().st_size for path in files)
    assert reached == sorted(reached)
    assert reached[-1] > trace.reader.size - files[-1].stat().st_size
    assert trace.reader.end is not None
    assert trace.reader.end["reason"] == "test"


# A log that is still being written, and into which nothing is written for a while.

MILLISECOND = 1_000_000
REQUESTS = 5


def test_the_newest_io_is_given_out_after_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a light log in a pipe that stays open, whose requests wait a second for earlier ones
    lights = [
        Light(at * MILLISECOND, start=at * MILLISECOND - 9000, issue=at * MILLISECOND - 8000)
        for at in range(1, REQUESTS + 1)
    ]
    path = write_log(tmp_path / "a.biotrail", lights)
    with LogReader(path) as reader:
        header, chunks = reader.header, list(reader.chunks())
    written = max(chunk.clock["monotonic"] for chunk in chunks)
    out, into = os.pipe()
    with os.fdopen(out, "rb") as stream, os.fdopen(into, "wb") as pipe:
        writer = LogWriter(pipe, header)
        for chunk in chunks:
            writer.write_chunk(chunk.segments, chunk.clock)
        pipe.flush()
        # WHEN nothing comes, until the last chunk is old enough
        age = backlog.QUIET_NS + backlog.SILENCE_NS
        clock = SimpleNamespace(monotonic_ns=lambda: written + age)
        monkeypatch.setattr(backlog, "time", clock)
        source = LiveSource(stream)
        source.start()
        windows = LiveTrace(source).windows()
        done = 0
        while done < REQUESTS:
            done += int((next(windows).bios.complete >= 0).sum())
        # THEN all I/O has been given out, though the log goes on
        assert source._thread.is_alive()
        # AND the same silence is told once
        assert source._written is None
        pipe.close()
        assert sum(int((window.bios.complete >= 0).sum()) for window in windows) == 0
