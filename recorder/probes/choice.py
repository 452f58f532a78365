# SPDX-License-Identifier: Apache-2.0
"""Which backend records: core where the kernel describes its types, bcc otherwise."""

from typing import Any

from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.capability import BTF_PATH
from biotrail.recorder.probes.core import CoreProbes, ProbeConfig
from biotrail.recorder.schema.errors import ProbeError

BACKENDS = ("auto", "core", "bcc")


def make_probes(backend: str, config: ProbeConfig) -> CoreProbes | BccProbes:
    """The probes, not yet open. Raises ProbeError for an unknown backend."""
    if backend not in BACKENDS:
        raise ProbeError(f"there is no backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "auto":
        backend = "core" if BTF_PATH.exists() else "bcc"
    return CoreProbes(config) if backend == "core" else BccProbes(config)


def backend_facts(probes: object) -> dict[str, Any]:
    """What a log's header says of the open probes' backend: its name, and what it cannot tell.

    `absent`: field names by letter that are empty in this log's records. `counts_skips`: events
    that the kernel skips are counted among the losses.
    """
    if isinstance(probes, BccProbes):
        return {"backend": "bcc", "absent": probes.absent()}
    counts = isinstance(probes, CoreProbes) and probes.counts_skips
    return {"backend": "core", "counts_skips": counts}
