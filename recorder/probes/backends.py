# SPDX-License-Identifier: Apache-2.0
"""Which backend records: core where the kernel describes its types, bcc otherwise."""

from recorder.errors import ProbeError
from recorder.probes.bcc_probes import BccProbes
from recorder.probes.capability import BTF_PATH
from recorder.probes.core import CoreProbes, ProbeConfig

BACKENDS = ("auto", "core", "bcc")


def make_probes(backend: str, config: ProbeConfig) -> CoreProbes | BccProbes:
    """The probes, not yet open. Raises ProbeError for an unknown backend."""
    if backend not in BACKENDS:
        raise ProbeError(f"there is no backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "auto":
        backend = "core" if BTF_PATH.exists() else "bcc"
    return CoreProbes(config) if backend == "core" else BccProbes(config)
