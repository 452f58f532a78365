# SPDX-License-Identifier: Apache-2.0
"""What a log says of the path beside the block layer, and a recording's messages about it."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.probes.backend import Capabilities
from biotrail.recorder.probes.maps.path_maps import PathChoice
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import PATH_PARTS, RECORDS, Kind, schema
from biotrail.recorder.session.session import Status, record
from tests.support.fake_probes import FakeProbes, options

PATH_KINDS = {record.kind for record in RECORDS if record.part}


class PathProbes(FakeProbes):
    """Probes of a backend that records the path."""

    capabilities = Capabilities("core", path=True)

    def __init__(self, choice: PathChoice) -> None:
        super().__init__()
        self.path = choice


def header_of(path: Path, choice: PathChoice) -> dict[str, Any]:
    recorded = record(options(path, duration=0.01, path=choice.parts), probes=PathProbes(choice))
    assert recorded.reason == "duration"
    return dict(LogReader(path).header)


def kinds(entries: Any) -> set[int]:
    return {int(entry["kind"]) for entry in entries}


def test_each_part_has_kinds_of_its_own() -> None:
    # GIVEN the kinds of records THEN those of a part are the path's, and each part has one
    assert {record.kind for record in RECORDS if record.part} == PATH_KINDS
    assert PATH_PARTS == ("call", "time", "wait", "irq", "dirty", "fs", "uring", "driver")


def test_a_schema_has_only_the_kinds_of_recorded_parts() -> None:
    # GIVEN no parts, some, all THEN the schema has the block layer's kinds and those of the parts
    plain = kinds(schema())
    others = {int(r.kind) for r in RECORDS if r.sites or r.light}
    assert plain == {int(r.kind) for r in RECORDS} - PATH_KINDS - others
    assert kinds(schema(("time",))) == plain | {Kind.RETURN, Kind.CALL_FILE}
    assert kinds(schema(("wait",))) == plain | {Kind.WAIT, Kind.WAIT_CALL, Kind.CALL_FILE}
    assert kinds(schema(PATH_PARTS, sites=True, light=True)) == {int(r.kind) for r in RECORDS}


def test_a_schema_has_the_kinds_of_chosen_sites_only_with_them() -> None:
    # GIVEN sites that were chosen by declaration THEN their kinds are those of hits and pairs
    assert kinds(schema(sites=True)) - kinds(schema()) == {Kind.HIT, Kind.PAIR}


def test_a_schema_has_the_light_kind_only_with_it() -> None:
    # GIVEN a recording of the event set light THEN its kind is there, and in no other
    assert kinds(schema(light=True)) - kinds(schema()) == {Kind.LIGHT}


def test_a_log_without_the_path_does_not_mention_it(tmp_path: Path) -> None:
    # GIVEN a recording without --path WHEN its header is read
    header = header_of(tmp_path / "log", PathChoice())
    # THEN it is as it always was: no entry, none of the path's kinds
    assert "path" not in header
    assert PATH_KINDS.isdisjoint(kinds(header["schema"]))
    assert not any("--path" in str(value) for value in header.values())


def test_the_header_names_parts_and_what_is_missing(tmp_path: Path) -> None:
    # GIVEN a recording of which one part is not to be had
    choice = PathChoice(frozenset({"irq", "time"}), lacking={"call": "no registers here"})
    said: list[Status] = []
    # WHEN it is made
    record(options(tmp_path / "log", duration=0.01, path=frozenset({"irq", "time", "call"})),
           said.append, PathProbes(choice))  # fmt: skip
    header = LogReader(tmp_path / "log").header
    # THEN the header has the parts in the schema's order, and the reason
    assert header["path"] == {
        "parts": ["time", "irq"],
        "missing": [{"part": "call", "reason": "no registers here"}],
    }
    assert kinds(header["schema"]) & PATH_KINDS == {Kind.RETURN, Kind.CALL_FILE, Kind.INTERRUPT}
    # AND the user was told
    assert any("--path call is not recorded: no registers here" in s.note for s in said)


def test_a_backend_without_the_path_refuses_it(tmp_path: Path) -> None:
    # GIVEN probes of a backend that records no path WHEN the path is asked for
    wanted = options(tmp_path / "log", duration=0.01, path=frozenset({"call"}))
    with pytest.raises(ProbeError, match="--backend core, or no --path"):
        record(wanted, probes=FakeProbes())
    # THEN nothing is left behind
    assert not (tmp_path / "log").exists()
