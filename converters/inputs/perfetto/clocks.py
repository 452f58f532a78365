# SPDX-License-Identifier: Apache-2.0
"""Ids of the clocks that Perfetto's traces have times of (perfetto.protos.BuiltinClock)."""

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
NAMES = {
    REALTIME: "REALTIME",
    2: "REALTIME_COARSE",
    MONOTONIC: "MONOTONIC",
    4: "MONOTONIC_COARSE",
    5: "MONOTONIC_RAW",
    BOOTTIME: "BOOTTIME",
    9: "TSC",
    10: "PERF",
}
BUILTIN = 64
"""Ids below are of these clocks; others are a sequence's or a program's own."""
