# SPDX-License-Identifier: Apache-2.0
"""Figures that programs add up in the kernel (`bpf/measure.h`): their structs and buckets."""

from biotrail.recorder.schema.limits import MEASURE_BUCKETS, MEASURE_OCTAVE
from biotrail.recorder.schema.structs import Member, Struct

LATENCY = "Q2C"
STAGES = (LATENCY, "G2D", "D2C", "pre-flush")
"""Names of the times of a request, as in bt_measured_io.stages; LATENCY is all of them."""
PER_OCTAVE = 2
"""Buckets in each power of two: from 2^n, and from 1.5 * 2^n."""
BOUNDS_NS = tuple(
    (PER_OCTAVE + part << octave) // PER_OCTAVE
    for octave in range(MEASURE_OCTAVE, MEASURE_OCTAVE + MEASURE_BUCKETS // PER_OCTAVE)
    for part in range(PER_OCTAVE)
)[: MEASURE_BUCKETS - 1]
"""Where each bucket ends, and the next begins, in ns; the last bucket has no end."""

KEY = Struct(
    "bt_measured_key",
    "What figures are of: a key of bt_measured. BT_MEASURE_OTHER: all that have none of their own.",
    (Member("dev", "u32", "the disk's dev_t"), Member("op", "u32", "enum req_op")),
)
STAGE = Struct(
    "bt_measured_stage",
    "A histogram of times (measure.h): below 2^BT_MEASURE_OCTAVE ns, then two to an octave.",
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
        Member("stages", "bt_measured_stage", "Q2C, G2D, D2C, pre-flush", "BT_MEASURE_STAGES"),
    ),
)
STRUCTS = (KEY, STAGE, MEASURED)
