# SPDX-License-Identifier: Apache-2.0
"""The block layer's tracepoints, and the fields that are read of their stable formats."""

from biotrail.recorder.schema.records import BY_LETTER, Kind

NEEDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("QGMFIRmsDCEc", ("dev", "sector", "nr_sector", "rwbs")),
    **dict.fromkeys("Aa", ("dev", "sector", "nr_sector", "old_dev", "old_sector", "rwbs")),
    "X": ("dev", "sector", "new_sector", "rwbs"),
    "d": ("dev",),
    "P": (),
    "U": ("nr_rq",),
}
"""Names of tracepoint fields, by letter, without which an event is not recorded."""

KIND_OF: dict[str, Kind] = {
    BY_LETTER[letter].tracepoint: BY_LETTER[letter].kind for letter in NEEDED
}
"""Kind of record by tracepoint: "block_rq_issue" → Kind.D."""

OLD_NAMES = {"block_remap": "block_bio_remap"}
"""Tracepoints that had another name → today's: Linux 2.6.38 renamed this one."""
KIND_OF |= {old: KIND_OF[name] for old, name in OLD_NAMES.items()}
