# SPDX-License-Identifier: Apache-2.0
"""Chooses the backend: core where the kernel has BTF, bcc otherwise."""

from typing import Any

from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.capability import BTF_PATH
from biotrail.recorder.probes.core import CoreProbes, ProbeConfig
from biotrail.recorder.schema.errors import ProbeError

BACKENDS = ("auto", "core", "bcc")


def make_probes(backend: str, config: ProbeConfig) -> CoreProbes | BccProbes:
    """Return the probes of a backend ("auto", "core" or "bcc"), not yet open.

    "auto" is core if /sys/kernel/btf/vmlinux exists, else bcc. Raises ProbeError: another name.
    """
    if backend not in BACKENDS:
        raise ProbeError(f"there is no backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "auto":
        backend = "core" if BTF_PATH.exists() else "bcc"
    return CoreProbes(config) if backend == "core" else BccProbes(config)


def backend_facts(probes: object) -> dict[str, Any]:
    """Return what a log's header says of the backend of these open probes.

    For bcc {"backend": "bcc", "absent": names of the fields that are empty in this log's records,
    by event letter}; otherwise {"backend": "core", "counts_skips": whether events whose program
    was already running on that CPU are counted as losses}.
    """
    if isinstance(probes, BccProbes):
        return {"backend": "bcc", "absent": probes.absent()}
    counts = isinstance(probes, CoreProbes) and probes.counts_skips
    return {"backend": "core", "counts_skips": counts}
