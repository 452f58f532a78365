# SPDX-License-Identifier: Apache-2.0
"""Figures that programs add up in the kernel (`bpf/measure.h`): their structs and buckets."""

from biotrail.recorder.schema.limits import (
    MEASURE_BUCKETS,
    MEASURE_HALF,
    MEASURE_OCTAVE,
    MEASURE_SCALE,
    MEASURE_WHOLE,
)
from biotrail.recorder.schema.shared import Member, Struct

LATENCY = "Q2C"
STAGES = (LATENCY, "G2D", "D2C", "pre-flush")
"""Names of the times of a request, as in bt_measured_io.stages; LATENCY is all of them."""
SCHEMA = 1
"""Prometheus' number of such buckets: 2^SCHEMA to each power of two, in seconds."""
FIRST_BOUND = 2 * (MEASURE_OCTAVE - 30) + 1
"""The first bucket ends at 2^(FIRST_BOUND / 2) s, each other one half an octave further. Of ns the
octave 30, from 2^30 on, has the bound 2^(1/2) s first: 1 s is below 2^30 ns."""
BOUNDS_NS = tuple(
    bound >> (MEASURE_SCALE - octave)
    for octave in range(MEASURE_OCTAVE, MEASURE_OCTAVE + MEASURE_BUCKETS // 2)
    for bound in (MEASURE_HALF, MEASURE_WHOLE)
)
"""The greatest time in each bucket but the last, which has no end, in whole ns."""

KEY = Struct(
    "bt_measured_key",
    "What figures are of: a key of bt_measured. BT_MEASURE_OTHER: all that have none of their own.",
    (Member("dev", "u32", "the disk's dev_t"), Member("op", "u32", "enum req_op")),
)
STAGE = Struct(
    "bt_measured_stage",
    "A histogram of times: two buckets to each power of two, in seconds (measure.h).",
    (
        Member("sum", "u64", "ns"),
        Member("buckets", "u64", "", "BT_MEASURE_BUCKETS"),
    ),
)
MEASURED = Struct(
    "bt_measured_io",
    "Sums over the requests of a device and operation that one CPU completed (measure.h).",
    (
        Member("ios", "u64", "requests that ended"),
        Member("bytes", "u64", "completed, also in parts"),
        Member("failed", "u64", "of ios, those that ended with an error"),
        Member("stages", STAGE, "Q2C, G2D, D2C, pre-flush", "BT_MEASURE_STAGES"),
    ),
)
STRUCTS = (KEY, STAGE, MEASURED)
