# SPDX-License-Identifier: Apache-2.0
"""What a recording of the event set light is refused, with the reason."""

from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.triggers import Triggers
from biotrail.recorder.probes import light
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.programs import EVENT_SETS, PROBES, essential_letters
from biotrail.recorder.schema.errors import ProbeError


def config(events: str = "light", **asked: object) -> ProbeConfig:
    return ProbeConfig(events, **asked)


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ("--pid", {"filters": Filters(pids=(1,))}),
        ("--tid", {"filters": Filters(tids=(1,))}),
        ("--comm", {"filters": Filters(comms=("fio",))}),
        ("--file", {"filters": Filters(files=("/x",))}),
        ("--dir", {"filters": Filters(dirs=("/",))}),
        ("--min-size", {"filters": Filters(min_bytes=4096)}),
        ("--sectors", {"filters": Filters(sectors=((0, 7),))}),
        ("--stacks", {"stacks": Stacks.KERNEL}),
        ("--files", {"files": True}),
        ("--path", {"path": frozenset({"call"})}),
        ("--trigger depth", {"triggers": Triggers(depth=8)}),
        ("--trigger stuck", {"triggers": Triggers(stuck_ns=8)}),
    ],
)
def test_what_a_completion_does_not_tell_is_refused(option: str, asked: dict[str, object]) -> None:
    # GIVEN a light recording that asks for more than a completion tells
    # WHEN it is opened THEN one message says what, and why
    with pytest.raises(ProbeError, match=f"--events light cannot have {option}: "):
        light.refuse(config(**asked))
    # AND other sets may have it
    light.refuse(config("minimal", **asked))


def test_what_a_completion_tells_is_not_refused() -> None:
    # GIVEN filters by operation, flags and cgroup, and triggers by time and error
    filters = Filters(ops=("read",), flags=(("sync",),), cgroups=("/",), below=True)
    # THEN a light recording has them
    light.refuse(config(filters=filters, triggers=Triggers(slow_ns=1, failed=True)))


def test_devices_without_requests_are_refused(tmp_path: Path, monkeypatch) -> None:
    # GIVEN a disk with requests, and one of dm without
    for name in ("8:0/mq", "252:0"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(light, "_DEVICES", tmp_path)
    disk, mapped = 8 << 20, 252 << 20
    # WHEN the latter is recorded alone THEN that is refused with what to do
    with pytest.raises(ProbeError, match="add --below"):
        light.refuse(config(devices=[(mapped, 0)]))
    # AND with the former, as --below has it, it is not, nor is a disk that sysfs does not have
    light.refuse(config(devices=[(mapped, 0), (disk, 0)]))
    light.refuse(config(devices=[(9 << 20, 0)]))


def test_the_bcc_backend_has_no_light_set(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the bcc backend, with all rights
    monkeypatch.setattr("biotrail.recorder.probes.bcc.probes.require_rights", lambda: None)
    # WHEN a light recording is opened THEN it is refused with what to do
    with pytest.raises(ProbeError, match="--events minimal, or --backend core"):
        BccProbes(config()).open()


def test_a_light_recording_needs_its_own_event_alone() -> None:
    # GIVEN the event sets THEN light has one event, which no other set has
    assert EVENT_SETS["light"] == "L"
    assert essential_letters("light") == ("L",)
    assert all("L" not in letters for name, letters in EVENT_SETS.items() if name != "light")
    assert {p.letter for p in PROBES} == set(EVENT_SETS["all"]) | {"L"}
