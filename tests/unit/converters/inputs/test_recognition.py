# SPDX-License-Identifier: Apache-2.0
"""What stands before the first event does not matter; of what nobody knows the kind is said."""

import gzip
import io
import zlib
from pathlib import Path

import pytest

import biotrail
from biotrail.converters.inputs.ftrace.text import TextSource
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from tests.support.cli_runner import Cli
from tests.support.paths import DATA
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


class Pipe(io.BytesIO):
    """Bytes that cannot be sought, as from a pipe."""

    def seekable(self) -> bool:
        return False


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
    # WHEN it is read
    [bio] = biotrail.open(stream).bios.to_pylist()
    # THEN there is the I/O
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
    # WHEN it is read
    with pytest.raises(LogFormatError) as error:
        list(open_source(Pipe(data) if pipe else io.BytesIO(data)).parts())
    # THEN the error says what it is, what to do, and what is read
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
