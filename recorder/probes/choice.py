# SPDX-License-Identifier: Apache-2.0
"""Chooses the backend: core where the kernel has BTF, bcc otherwise."""

from biotrail.recorder.probes.backend import ProbeConfig, Probes
from biotrail.recorder.probes.capability import BTF_PATH
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.errors import ProbeError

BACKENDS = ("auto", "core", "bcc")


def make_probes(backend: str, config: ProbeConfig) -> Probes:
    """Return the probes of a backend ("auto", "core" or "bcc") for `config`, not yet open.

    "auto" is core if /sys/kernel/btf/vmlinux exists, else bcc; whether that backend can record here
    is not checked. Raises ProbeError: another name.
    """
    if backend not in BACKENDS:
        raise ProbeError(f"there is no backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "auto":
        backend = "core" if BTF_PATH.exists() else "bcc"
    if backend == "core":
        return CoreProbes(config)
    from biotrail.recorder.probes.bcc.probes import BccProbes  # takes 30 ms

    return BccProbes(config)
