# SPDX-License-Identifier: Apache-2.0
"""The kernel's own events, from `perf script`, as Perfetto's recorder would have written them."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.system_traces import Event, SystemTrace

SCHED = ",sched:sched_switch,sched:sched_waking"
"""What perf is to record besides; clock: CLOCK_MONOTONIC."""
DRAIN_NS = 100_000_000
"""How often the recorder reads all CPUs' buffers, one CPU after the other."""
_LINE = re.compile(
    r"\s*(?P<comm>.+?)\s+(?P<tid>\d+)\s+\[(?P<cpu>\d+)\]\s+(?P<s>\d+)\.(?P<ns>\d{9}):\s+"
    r"\w+:(?P<event>\w+):\s?(?P<text>.*)"
)
_DEV = r"(?P<major>\d+),(?P<minor>\d+) "
_PLACE = r"(?P<sector>\d+) \+ (?P<nr_sector>\d+)"
_TASK = r" \[(?P<comm>.*)\]"
_BIO = re.compile(_DEV + r"(?P<rwbs>\S+) " + _PLACE + _TASK)
_BIO_DONE = re.compile(_DEV + r"(?P<rwbs>\S+) " + _PLACE + r" \[(?P<error>-?\d+)\]")
_SPLIT = re.compile(_DEV + r"(?P<rwbs>\S+) (?P<sector>\d+) / (?P<new_sector>\d+)" + _TASK)
_REMAP = re.compile(
    _DEV + r"(?P<rwbs>\S+) " + _PLACE + r" <- \((?P<old_major>\d+),(?P<old_minor>\d+)\) "
    r"(?P<old_sector>\d+)"
)
_RQ = re.compile(_DEV + r"(?P<rwbs>\S+) (?P<bytes>\d+) \(.*?\) " + _PLACE + r".*?" + _TASK)
_RQ_DONE = re.compile(_DEV + r"(?P<rwbs>\S+) \(.*?\) " + _PLACE + r".*? \[(?P<error>-?\d+)\]")
_PLUG = re.compile(r"\[(?P<comm>.*)\]")
_UNPLUG = re.compile(r"\[(?P<comm>.*)\] (?P<nr_rq>\d+)")
_WAKING = re.compile(
    r"comm=(?P<comm>.*) pid=(?P<pid>\d+) prio=(?P<prio>\d+) target_cpu=(?P<target_cpu>\d+)"
)
_SWITCH = re.compile(
    r"prev_comm=(?P<prev_comm>.*) prev_pid=(?P<prev_pid>\d+) prev_prio=(?P<prev_prio>\d+) "
    r"prev_state=(?P<state>\S+) ==> next_comm=(?P<next_comm>.*) next_pid=(?P<next_pid>\d+) "
    r"next_prio=(?P<next_prio>\d+)"
)
_TEXTS = {
    **dict.fromkeys(("block_bio_queue", "block_getrq"), _BIO),
    **dict.fromkeys(("block_bio_backmerge", "block_bio_frontmerge"), _BIO),
    "block_bio_complete": _BIO_DONE,
    "block_split": _SPLIT,
    "block_bio_remap": _REMAP,
    **dict.fromkeys(("block_rq_insert", "block_rq_issue", "block_rq_merge"), _RQ),
    **dict.fromkeys(("block_io_start", "block_io_done"), _RQ),
    **dict.fromkeys(("block_rq_complete", "block_rq_requeue", "block_rq_error"), _RQ_DONE),
    "block_plug": _PLUG,
    "block_unplug": _UNPLUG,
    "sched_waking": _WAKING,
    "sched_switch": _SWITCH,
}
_STATES = {"R": 0, "S": 1, "D": 2, "T": 4, "t": 8, "X": 16, "Z": 32, "P": 64, "I": 128}
_TEXT_FIELDS = ("rwbs", "comm", "prev_comm", "next_comm")


def script(perf_data: Path) -> str:
    """What perf prints of a recording with times in ns."""
    command = ["perf", "script", "-i", str(perf_data), "--ns"]
    command += ["-F", "comm,tid,cpu,time,event,trace"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def events(text: str) -> Iterator[tuple[int, Event]]:
    """(CPU, event) of each line that is known; others are left out.

    perf 6.1 prints some lines of large recordings twice.
    """
    for line in dict.fromkeys(text.splitlines()):
        found = _LINE.match(line)
        if found is None or found["event"] not in _TEXTS:
            continue
        fields = _TEXTS[found["event"]].match(found["text"].strip())
        assert fields is not None, line
        at = int(found["s"]) * 1_000_000_000 + int(found["ns"])
        named = _fields(found["event"], fields.groupdict())
        yield int(found["cpu"]), (at, int(found["tid"]), found["event"], named)


def _fields(event: str, texts: dict[str, str]) -> dict[str, Any]:
    """The fields as the recorder writes them: device numbers as userspace has them."""
    named: dict[str, Any] = {
        name: text if name in _TEXT_FIELDS else int(text)
        for name, text in texts.items()
        if "major" not in name and "minor" not in name and name != "state"
    }
    for name, prefix in (("dev", ""), ("old_dev", "old_")):
        if f"{prefix}major" in texts:
            named[name] = makedev(int(texts[f"{prefix}major"]), int(texts[f"{prefix}minor"]))
    if event in ("block_rq_requeue",):
        named["errors"] = named.pop("error")
    if "state" in texts:
        named["prev_state"] = _STATES.get(texts["state"].rstrip("+")[:1], 0)
    return named


def makedev(major: int, minor: int) -> int:
    """glibc's device number."""
    high = (major & 0xFFFFF000) << 32 | (minor & 0xFFFFFF00) << 12
    return high | (major & 0xFFF) << 8 | minor & 0xFF


def add_all(trace: SystemTrace, found: Iterable[tuple[int, Event]]) -> None:
    """Add events as the recorder reads them: every 100 ms, a bundle for each CPU."""
    drains: dict[int, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for cpu, event in found:
        drains[event[0] // DRAIN_NS][cpu].append(event)
    for _, cpus in sorted(drains.items()):
        for cpu, of_cpu in sorted(cpus.items()):
            trace.events(cpu, sorted(of_cpu, key=lambda event: event[0]))
