# SPDX-License-Identifier: Apache-2.0
"""A short, repeatable round of fuzzing; `make fuzz` goes on for as long as one likes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import fuzz_mending, make_corpus
from tests.fuzz.mutations import CORPUS, END, HEADER, command_lines, damaged, kept, written
from tests.fuzz.targets import TARGETS, command, cost, log, model
from tests.support import crafted_logs

ROUND: dict[str, Any] = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def files() -> list[Any]:
    found = []
    alone = ("blktrace", "archive", "inputs", "blkparse", "lttng", "server", "command")
    of_kind = {"log": ("log", "model"), **{kind: (kind,) for kind in alone}}
    for kind, targets in of_kind.items():
        paths = sorted((CORPUS / kind).iterdir())
        found += [pytest.param(t, p, id=f"{t}-{p.name}") for t in targets for p in paths]
    return found


@pytest.mark.parametrize(("target", "path"), files())
def test_what_once_broke_it_does_not(target: str, path: Path) -> None:
    # GIVEN an input of the corpus
    # WHEN it is read
    # THEN there is a result or a clear message
    TARGETS[target](path.read_bytes())


def test_the_corpus_is_what_makes_it() -> None:
    # GIVEN the inputs as make_corpus.py makes them
    # THEN they are what is kept, none forgotten, none edited by hand; compressed ones differ
    # between releases of zstd
    for kind, made in make_corpus.inputs().items():
        for name, data in made.items():
            kept_one = (CORPUS / kind / name).read_bytes()
            assert kept_one == data or kind != "blktrace", f"run make_corpus.py: {name}"


@pytest.mark.parametrize("size", [100_000, 400_000])
def test_cost_grows_with_the_size_alone(size: int) -> None:
    # GIVEN larger files of the crafted kinds
    logs = [make(size) for make in crafted_logs.MADE.values()]
    traces = [data * (size // len(data)) for data in make_corpus.crafted_blktrace().values()]
    # WHEN they are read
    # THEN what is looked at is within the same bound, relative to their size
    for data in logs:
        log(data)
    for data in traces:
        cost(data)


@pytest.mark.parametrize(
    ("target", "kind", "examples"),
    [
        ("log", "log", 150),
        ("model", "log", 40),
        ("blktrace", "blktrace", 60),
        ("archive", "archive", 40),
        ("inputs", "inputs", 80),
        ("blkparse", "blkparse", 60),
        ("lttng", "lttng", 10),
        ("server", "server", 150),
    ],
)
def test_any_input_is_read_or_refused(target: str, kind: str, examples: int) -> None:
    # GIVEN what is kept for a target, damaged, or made up with right checksums
    # WHEN it is read, and what can be read is associated and converted
    # THEN there is a result, or a clear message
    settings(max_examples=examples, **ROUND)(given(damaged(kept(kind)))(TARGETS[target]))()


@settings(max_examples=80, **ROUND)
@given(written(HEADER, END))
def test_any_records_and_facts_go_through_the_model(data: bytes) -> None:
    # GIVEN a whole log whose records or facts nobody would write
    # WHEN it is associated and converted
    # THEN there is a result, or a clear message
    model(data)


@settings(max_examples=200, **ROUND)
@given(command_lines())
def test_any_command_line_ends_with_a_message(data: bytes) -> None:
    # GIVEN a command with any arguments and any file
    # WHEN it is run
    # THEN it ends with 0, 1 or 2, and says why
    command(data)


def test_mending_makes_a_whole_log_of_a_damaged_one() -> None:
    # GIVEN a log of the corpus with a byte of its header changed, which its checksum tells
    whole = kept("log")[0]
    at = whole.index(b"log_id")
    changed = whole[:at] + b"LOG" + whole[at + 3 :]
    # WHEN it is mended
    # THEN the checksums are right again, and nothing else is changed
    assert fuzz_mending.mended(whole) == whole
    assert fuzz_mending.mended(changed) != changed
    assert len(fuzz_mending.mended(changed)) == len(changed)
