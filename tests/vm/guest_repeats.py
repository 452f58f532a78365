# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: loads are recorded again where the kernel skipped events of them.

Kernels whose tracepoints are preemptible do that now and then (docs/kernels.md). Only a log whose
losses are all of this kind makes another try, so nothing that biotrail loses itself is hidden.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from biotrail.recorder.accounting.loss import NOT_ONE_CPU
from biotrail.recorder.log.reader import LogReader
from tests.vm.guest_case import Case

REPEATS = 4
TICK_NS = 20_000_000
"""Two of the times that a load's script takes, from /proc/uptime."""

Window = dict[str, Any]


def skips(path: Path) -> list[Window]:
    """When the kernel skipped events; none where the log has other losses, too."""
    with LogReader(path) as log:
        mine = [window for window in log.losses if window["cpu"] == NOT_ONE_CPU]
        return mine if len(mine) == len(log.losses) else []


def until_whole(case: Case, record: Callable[[], None]) -> None:
    """Records, again while the kernel skipped events; the last log stays."""
    for repeats in range(REPEATS + 1):
        record()
        case.told["repeats"] = repeats
        if not skips(case.directory / "log.biotrail"):
            return


Load = tuple[Case, Sequence[str]]
"""A case, and the commands of its load."""


def record_loads(
    whole: Case, devices: list[str], loads: Sequence[Load], more: Sequence[str] = ()
) -> None:
    """All loads in one log; in others those that the kernel skipped events of, once more each.

    more: options of the recording. Tells each case in which log it is whole, or its last.
    """
    for repeats in range(REPEATS + 1):
        name = f"log-{repeats}" if repeats else "log"
        script = whole.directory / f"{name}.sh"
        commands = [line for load in loads for line in _timed(*load)]
        script.write_text("\n".join([*commands, "sync"]) + "\n", encoding="utf-8")
        whole.record(devices, ["bash", str(script)], name, more)
        for case, _ in loads:
            case.told |= {"log": f"{whole.name}/{name}.biotrail", "repeats": repeats}
        windows = skips(whole.directory / f"{name}.biotrail")
        loads = [load for load in loads if _is_hit(load[0], windows)]
        if not loads:
            return


def _timed(case: Case, commands: Sequence[str]) -> list[str]:
    """The commands, with the time before and after them."""
    place = case.directory / "uptimes"
    return [f"cat /proc/uptime >{place}", *commands, f"cat /proc/uptime >>{place}"]


def _is_hit(case: Case, windows: Sequence[Window]) -> bool:
    """Whether something was skipped while the case's load ran."""
    lines = (case.directory / "uptimes").read_text(encoding="ascii").splitlines()
    start, end = (round(float(line.split()[0]) * 1e9) for line in lines)
    return any(w["start"] <= end + TICK_NS and start - TICK_NS <= w["end"] for w in windows)
