# SPDX-License-Identifier: Apache-2.0
"""Times of ftrace's clocks in ns, and what each clock means for the user."""

import numpy as np

from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.ftrace.recording import Recording
from biotrail.recorder.schema.errors import LogFormatError

NS_CLOCKS = ("local", "global", "perf", "mono", "mono_raw", "boot", "tai", "uptime")
"""trace_clock's names of clocks that count ns."""
_COUNTS = ("x86-tsc", "tsc2nsec", "counter", "ppc-tb")
_DATE_UNCERTAINTY_NS = 1_000_000
"""trace-cmd measures the wall clock (--date) by a marker that it writes: 161 µs off on an emulated
machine."""


def clock_remark(name: str, clock: str, recording: Recording) -> list[str]:
    """Return what to say of a trace clock. Raises LogFormatError: its times are no ns."""
    if clock in _COUNTS and recording.tsc is None:
        raise LogFormatError(
            f"{name}: recorded with the clock {clock!r}, whose counts cannot be converted to ns; "
            "record with `trace-cmd record -C mono`"
        )
    if clock == "local":
        return [f"{name}: trace clock 'local', which may differ between CPUs; `-C mono` does not"]
    if clock == "uptime":
        return [f"{name}: trace clock 'uptime', which advances a tick (1 to 10 ms) at a time"]
    return [f"{name}: trace clock {clock!r}"]


def in_ns(time: I64, recording: Recording) -> I64:
    """Return times of the trace's clock in ns, with the offset that trace-cmd adds on reading.

    Counts of the TSC are multiplied and shifted as the kernel does (mul_u64_u32_shr).
    """
    if recording.tsc is not None:
        factor, shift = map(np.uint64, recording.tsc)
        counts = time.view(np.uint64)
        high, low = counts >> np.uint64(32), counts & np.uint64(0xFFFFFFFF)
        time = ((high * factor << np.uint64(32) - shift) + (low * factor >> shift)).view(np.int64)
    return time + np.int64(recording.offset_ns) if recording.offset_ns else time


def wall_clock(time: int, date_ns: int) -> dict[str, int]:
    """Return clock readings at `time` (ns) as in a log's header.

    date_ns: CLOCK_REALTIME minus the trace's clock. trace-cmd records no CLOCK_BOOTTIME: the
    trace's own clock is put in its place.
    """
    return {
        "monotonic": time,
        "boottime": time,
        "realtime": time + date_ns,
        "uncertainty": _DATE_UNCERTAINTY_NS,
    }
