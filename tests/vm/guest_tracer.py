# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: the kernel's own tracer, beside a recording, as the truth about it."""

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from biotrail.recorder.sites.types import Taking, TypeTable
from tests.support.ftrace_setup import TRACEFS, instance
from tests.support.traced_calls import ENTRIES, RETURNS, kprobe_lines, missed
from tests.vm.guest_case import Case, put

BUFFER_KIB = 32768
KPROBE_EVENTS = TRACEFS / "kprobe_events"
REGISTERS = 6
"""Arguments that are in registers by x86-64's calling convention."""


def functions_of(struct: str) -> list[Taking]:
    """Every function with a `struct T *` in a register that the kernel's function tracer knows."""
    lines = (TRACEFS / "available_filter_functions").read_text().splitlines()
    known = {line.split()[0] for line in lines}
    return [
        taking
        for taking in TypeTable.kernel().functions_taking(struct)
        if 0 <= taking.slot < REGISTERS and taking.name in known
    ]


def _declare(line: str) -> bool:
    """Adds a line to `kprobe_events`; False: the kernel refuses it."""
    events = os.open(KPROBE_EVENTS, os.O_WRONLY | os.O_APPEND)  # a text file would seek
    try:
        os.write(events, f"{line}\n".encode())
    except OSError:
        return False
    finally:
        os.close(events)
    return True


@contextmanager
def _written(case: Case, name: str, events: Iterable[str]) -> Iterator[None]:
    """Traces `events` (group or group/event); the text is the case's NAME.txt."""
    with instance(BUFFER_KIB) as place:
        switches = [place / "events" / event / "enable" for event in events]
        for switch in switches:
            put(switch, 1)
        try:
            yield
        finally:
            put(place / "tracing_on", 0)
            for switch in switches:
                put(switch, 0)
        text = (place / "trace").read_text(errors="replace")
        (case.directory / f"{name}.txt").write_text(text, encoding="utf-8")


@contextmanager
def traced_events(case: Case, *events: str) -> Iterator[None]:
    """Traces tracepoints, as "smmu/io_fault_entry"; the text is the case's trace.txt."""
    with _written(case, "trace", events):
        yield


@contextmanager
def traced_calls(case: Case, functions: Iterable[Taking], name: str = "trace") -> Iterator[None]:
    """Traces entries, with the object's address, and returns of functions by kprobes.

    Tells the test in `told` which functions were `traced`, and which probes were `missed`, once
    it is over. Functions that the kernel lets nobody probe are left out.
    """
    declared: list[str] = []
    traced: list[str] = []
    try:
        for entry, back in kprobe_lines((one.name, one.slot) for one in functions):
            if _declare(entry):
                declared.append(entry)
                traced.append(entry.split()[1])
                if _declare(back):
                    declared.append(back)
        with _written(case, name, (ENTRIES, RETURNS)):
            yield
        profile = (TRACEFS / "kprobe_profile").read_text()
    finally:
        for line in declared:
            _declare(f"-:{line.partition(':')[2].split()[0]}")
    case.told |= {"traced": traced, "missed": missed(profile)}


def probes_left() -> list[str]:
    """Return the lines of `kprobe_events`: none where nobody left any."""
    return [line for line in KPROBE_EVENTS.read_text().splitlines() if line.strip()]


def module_path(name: str) -> Path:
    """Where a module of these tests lies that was built for this kernel."""
    return Path("/lib/modules", platform.release(), f"{name}.ko")
