# SPDX-License-Identifier: Apache-2.0
"""The layouts of text: which are read, what is said of the others; docs/inputs.md lists both."""

import gzip
import io
import re

import pytest

import biotrail
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import NO_CPU
from biotrail.converters.inputs.ftrace import lines as lines_module
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support.both_ways import uncompiled
from tests.support.paths import ROOT
from tests.support.text_layouts import (
    COMPLETE,
    ISSUE,
    PAIRS_COMPLETE,
    PAIRS_ISSUE,
    READ,
    REFUSED,
    TextLayout,
    table,
)

DOC = ROOT / "docs" / "inputs.md"
SECTION = re.compile(r"(<!-- generated: layouts of text -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def named(layout: TextLayout) -> str:
    return layout.name


def events_of(data: bytes) -> Events:
    return Events.join([part.events for part in open_source(io.BytesIO(data)).parts()])


@pytest.mark.parametrize("layout", READ, ids=named)
def test_a_layout_is_read(layout: TextLayout) -> None:
    # GIVEN one read in this layout / WHEN it is opened
    [io_] = biotrail.open(io.BytesIO(layout.text)).bios.to_pylist()
    # THEN it is one I/O of 200 µs
    assert (io_["device"], io_["op"], io_["sector"], io_["bytes"]) == ("8:0", "read", 1000, 4096)
    assert (io_["latency_ns"], io_["status"]) == (200_000, "OK")


@pytest.mark.parametrize("layout", READ, ids=named)
def test_threads_and_cpus_are_in_their_places(layout: TextLayout) -> None:
    # GIVEN one read in this layout / WHEN it is read
    events = events_of(layout.text)
    # THEN the thread is known, and the CPU, or that it is not
    task = events.fields(Kind.TASK, events.rows(Kind.TASK))
    assert task["tid"].tolist()[0] == 500
    assert set(events.cpu.tolist()) == {NO_CPU if "CPUs" in layout.lacks else 0}


@pytest.mark.parametrize("layout", REFUSED, ids=named)
def test_a_layout_without_what_is_needed_is_named(layout: TextLayout) -> None:
    # GIVEN text in this layout / WHEN it is read
    with pytest.raises(LogFormatError) as error:
        events_of(layout.text)
    # THEN the error says what to print instead
    assert layout.refused in str(error.value)


@pytest.mark.parametrize("layout", [*READ, *REFUSED], ids=named)
def test_without_a_compiler_it_is_the_same(
    layout: TextLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN the loops compiled and uncompiled / WHEN both read the text
    def outcome() -> object:
        try:
            return events_of(layout.text).raw.tolist()
        except LogFormatError as error:
            return str(error)

    compiled = outcome()
    monkeypatch.setattr(lines_module, "loops", uncompiled("converters/inputs/ftrace/line_loops.py"))
    # THEN it is the same
    assert outcome() == compiled


@pytest.mark.parametrize("layout", READ, ids=named)
def test_layouts_are_read_from_gzip_files_and_without_the_last_newline(layout: TextLayout) -> None:
    # GIVEN the text, packed, and as it is pasted, without the newline at its end
    for data in (gzip.compress(layout.text), layout.text.rstrip()):
        # WHEN it is read / THEN it is the same I/O
        events = events_of(data)
        assert len(events.rows(Kind.D)) == len(events.rows(Kind.C)) == 1


def test_the_document_lists_the_layouts(update: bool) -> None:
    # GIVEN the document / WHEN its table is made again
    text, wanted = DOC.read_text(), table() + "\n"
    if update:
        text = SECTION.sub(lambda m: m[1] + wanted + m[3], text)
        DOC.write_text(text)
    # THEN it is what stands there
    found = SECTION.search(text)
    assert found is not None
    assert found[2] == wanted


@pytest.mark.parametrize(
    ("usual", "pairs"),
    [
        (
            "block_bio_queue: 7,0 R 49032 + 8 [fio]",
            "block_bio_queue: dev=7340032 sector=49032 nr_sector=8 rwbs=R comm=fio",
        ),
        (
            "block_split: 7,0 R 49032 / 49036 [fio]",
            "block_split: dev=7340032 sector=49032 new_sector=49036 rwbs=R comm=fio",
        ),
        (
            "block_bio_remap: 7,0 R 49032 + 8 <- (259,1) 11",
            "block_bio_remap: dev=7340032 sector=49032 nr_sector=8 old_dev=271581185 old_sector=11 "
            "rwbs=R",
        ),
        (
            "block_rq_remap: 7,0 R 49032 + 8 <- (259,1) 11 1",
            "block_rq_remap: dev=7340032 sector=49032 nr_sector=8 old_dev=271581185 old_sector=11 "
            "nr_bios=1 rwbs=R",
        ),
        ("block_plug: [a b]", "block_plug: comm=a b"),
        ("block_unplug: [fio] 3", "block_unplug: nr_rq=3 comm=fio"),
        (
            "block_rq_insert: 7,0 FWS 4096 () 49032 + 8 [a cmd= b]",
            "block_rq_insert: dev=0x700000 (7340032) sector=0xbf88 (49032) nr_sector=0x8 (8) "
            "bytes=0x1000 (4096) ioprio=0x0 (0) rwbs=FWS comm=a cmd= b cmd=",
        ),
        (
            "block_rq_complete: 7,0 R () 49032 + 8 [-5]",
            "block_rq_complete: dev=0x700000 (7340032) sector=0xbf88 (49032) nr_sector=0x8 (8) "
            "error=0xfffffffb (-5) rwbs=R cmd=",
        ),
        (
            "block_bio_complete: 7,0 R 49032 + 8 [-121]",
            "block_bio_complete: dev=7340032 sector=49032 nr_sector=8 error=-121 rwbs=R",
        ),
        (
            "block_rq_issue: 7,0 N 36 () 18446744073709551615 + 0 [fio]",
            "block_rq_issue: dev=7340032 sector=18446744073709551615 nr_sector=0 bytes=36 rwbs=N "
            "comm=fio cmd=",
        ),
    ],
)
def test_fields_by_name_are_the_same_events(usual: str, pairs: str) -> None:
    # GIVEN an event in the usual layout, and with its fields by name
    head = "             fio-18214   [001] d..1.  1996.596531: "
    # WHEN both are read
    one, other = (events_of(f"{head}{body}\n".encode()) for body in (usual, pairs))
    # THEN they are the same, but for where a name ends that looks like a field
    kinds = one.kind != Kind.TASK
    assert (one.raw[kinds] == other.raw[other.kind != Kind.TASK]).all()


@pytest.mark.parametrize("left_out", ["dev", "sector", "rwbs", "nr_sector"])
def test_events_that_lack_a_field_are_said(left_out: str) -> None:
    # GIVEN an event of which a field is missing, beside a whole one
    odd = re.sub(rf"\b{left_out}=\S+ ", "", PAIRS_ISSUE)
    head = "dd-500   [000]    10.000000: "
    source = open_source(io.BytesIO(f"{head}{ISSUE}\n{head}{odd}\n".encode()))
    # WHEN it is read
    events = Events.join([part.events for part in source.parts()])
    # THEN it is left out, and its line named
    assert len(events.rows(Kind.D)) == 1
    assert "1 lines of block events that are not understood, the first in line 2" in str(
        source.problems
    )


def test_lines_that_mail_has_broken_are_refused_with_the_first() -> None:
    # GIVEN lines that a mail program has wrapped
    lines = [
        f"              dd-500     [000] .....    10.000000: {ISSUE}",
        f"          <idle>-0       [000] d.h..    10.000200: {COMPLETE}",
    ]
    text = "\n".join(part for line in lines for part in (line[:72], line[72:])) + "\n"
    # WHEN they are read / THEN no event is guessed
    with pytest.raises(LogFormatError, match="none of its 2 lines of block events is understood"):
        events_of(text.encode())


def test_times_that_a_difference_wrapped_around_are_differences() -> None:
    # GIVEN text of `perf script --deltatime` with an event that was before the one above it
    text = "\n".join(
        f"dd 500 [000] {time}: block:{ISSUE}"
        for time in ("0.000000", "0.000100", "18446744073.709548", "0.000020", "0.000300")
    )
    # WHEN it is read / THEN the option is named
    with pytest.raises(LogFormatError, match="--deltatime"):
        events_of(text.encode() + b"\n")


def test_an_event_with_its_fields_by_name_keeps_odd_names() -> None:
    # GIVEN names that look like fields, quoted in the layout of pairs
    for name in ("a b", "x=1", "dev=3", "a]"):
        body = PAIRS_ISSUE.replace("comm=dd", f"comm={name}")
        # WHEN it is read
        events = events_of(f"dd-500   [000]    10.000000: {body}\n".encode())
        # THEN sector and device are right, and so is the name
        assert events.fields(Kind.D, events.rows(Kind.D))["sector"].tolist() == [1000]
        task = events.take(events.rows(Kind.TASK)).raw[:, 2:4].tobytes().rstrip(b"\0")
        assert task == name.encode()


def test_completions_with_fields_by_name_have_their_status() -> None:
    # GIVEN a completion with an error
    body = PAIRS_COMPLETE.replace("error=0", "error=-5")
    # WHEN it is read / THEN it is an I/O error
    events = events_of(f"dd-500   [000]    10.000000: {body}\n".encode())
    assert events.fields(Kind.C, events.rows(Kind.C))["status"].tolist() == [10]
