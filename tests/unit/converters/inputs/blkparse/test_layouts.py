# SPDX-License-Identifier: Apache-2.0
"""Layouts of `blkparse -f`: known by their lines, or refused with what is not clear."""

import io

import pytest

from biotrail.converters.inputs.opening import open_source
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.unit.converters.inputs.blkparse.texts import events_of, io_lines, source_of, text

IOS = 20
FORMS = {
    "the default head": "{D:>7} {c:2} {s:8} {T:>15} {p:5} {a:>2} {d:>3} {S} + {n} [{C}]",
    "columns": "{T} {p} {a} {d} {S} {n} {C}",
    "commas": "{D}  ,{c},{s},{T},{p},{a},{d},{S},{n},{C}",
    "action first": "{a} {d} {T} {S} + {n}",
    "CPU": "{c} {T} {a} {d} {S} {n}",
    "number": "{D} {s} {T} {a} {d} {S} {n}",
    "error": "{D} {T} {p} {a} {d} {S} + {n} [{e}]",
}


def records(form: str, *more: tuple[str, int, int]) -> bytes:
    """IOS reads of 8 sectors in a form; more: (action, sector, sectors)."""
    found = [(act, 64 * i, 8) for i in range(IOS) for act in "QGIDC"]
    lines = []
    for number, (act, sector, sectors) in enumerate([*found, *more], 1):
        values = {"a": act, "S": sector, "n": sectors, "N": 512 * sectors, "s": number}
        values |= {"D": "8,0", "c": 0, "T": f"0.{number:09d}", "p": 42, "d": "R", "e": 0}
        lines.append(form.format(**values, C="my dd"))
    return text(*lines)


@pytest.mark.parametrize("form", FORMS)
def test_a_layout_that_tells_enough_is_read(form: str) -> None:
    # GIVEN reads, in a layout of -f
    source = source_of(records(FORMS[form]))
    # WHEN they are read
    trace = Trace(source)
    bios = [window.bios for window in trace.lifecycles()]
    # THEN each has its parts; what is not printed is told with what that costs
    assert sum(map(len, bios)) == IOS
    assert source.problems == []
    assert ("has no sequence number" in "\n".join(source.remarks)) == ("{s" not in FORMS[form])
    assert ("has no error" in "\n".join(source.remarks)) == (form != "error")


def test_what_a_layout_cannot_tell_is_left_out_and_counted() -> None:
    # GIVEN a remap and a split, whose origin and rest -f does not print
    source = source_of(records(FORMS["the default head"], ("A", 8, 8), ("X", 8, 8)))
    # WHEN they are read
    events = events_of(source)
    # THEN the others are there, no loss is made up, and it is told
    assert len(events) == 5 * IOS
    assert not set(events.kind.tolist()) & {Kind.A, Kind.X}
    assert source.losses == []
    assert sum("left out: -f does not print" in remark for remark in source.remarks) == 2


def test_lines_of_another_layout_are_told() -> None:
    # GIVEN lines that do not have the layout of the others
    source = source_of(records(FORMS["columns"]) + b"0.000000999 odd\n")
    # WHEN they are read
    events = events_of(source)
    # THEN they are counted
    assert len(events) == 5 * IOS
    assert "1 lines with a time that do not have the layout" in source.problems[0]


@pytest.mark.parametrize(
    ("form", "what"),
    [
        ("{T}, {p}, {C}, {a}, {S}", "RWBS"),
        ("{T} {a} {d} {S} {N}", "bytes (%N)"),
        ("{T} {a} {d} {S} {n} {e}", "sector (%S)"),
        ("{T} {c} {p} {a} {d} {S} {n}", "bare numbers"),
        ("{T} {T} {a} {d} {S} {n}", "which of 2 columns is the time"),
    ],
)
def test_a_layout_that_is_not_clear_is_refused(form: str, what: str) -> None:
    # GIVEN a layout without what is needed, or in which it could be any of two columns
    # WHEN it is opened
    # THEN one message says what is not clear, and what to print
    with pytest.raises(LogFormatError, match="layout of -f, which does not tell") as error:
        source_of(records(form))
    assert what in str(error.value)
    assert "print it with blkparse's default format" in str(error.value)


def test_a_trace_without_numbers_that_is_there_twice_counts_once() -> None:
    # GIVEN a text without numbers, appended to itself
    once = records(FORMS["columns"])
    source = source_of(once + once)
    # WHEN it is read
    events = events_of(source)
    # THEN the second half is left out, and told
    assert len(events) == 5 * IOS + 1  # the last line's repetition has the newest time
    assert "earlier times than the lines before" in source.problems[0]


def test_text_of_other_tools_is_not_taken_for_it() -> None:
    # GIVEN text with times and letters
    others = [
        b"dd-42 [000] .... 0.000000001: block_bio_queue: 8,0 R 8 + 8 [dd]\n",
        b"0.000000001 some words\n0.000000002 more words\n",
        text("hello", *io_lines(1, 8))[:3],
    ]
    # WHEN it is opened
    # THEN it is another format's, or nobody's
    for data in others:
        try:
            source = open_source(io.BytesIO(data))
        except LogFormatError as error:
            assert "blkparse" not in str(error)
        else:
            assert source.header["created_by"] != "blkparse"
