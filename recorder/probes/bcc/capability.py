# SPDX-License-Identifier: Apache-2.0
"""Checks what the bcc backend needs of this machine (`biotrail doctor`); core needs none of it."""

import os

from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.probes.bcc import load as bcc_load
from biotrail.recorder.probes.bcc import source as bcc_source
from biotrail.recorder.probes.capability import Check, refusal
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.programs import ESSENTIAL, STEPS
from biotrail.recorder.schema.errors import ProbeError

_NAME = "bcc backend"


def report() -> list[Check]:
    """Return checks of the package bcc, kernel headers and tracepoints, none of them `required`."""
    return [_package(), _headers(), _tracepoints()]


def possible(checks: list[Check]) -> bool:
    return refusal() is None and all(check.ok for check in checks)


def _check(what: str, ok: bool, detail: str, remedy: str = "") -> Check:
    return Check(f"{_NAME}: {what}", ok, detail, remedy, required=False)


def _package() -> Check:
    place = bcc_child.find_bcc()
    if place is None:
        return _check("bcc", False, "not installed", bcc_load.INSTALL_BCC)
    return _check("bcc", True, place)


def _headers() -> Check:
    place = bcc_headers.find()
    if place is None:
        return _check("kernel headers", False, "not installed", bcc_headers.remedy())
    try:
        bcc_headers.resolve(place)
    except ProbeError as error:
        return _check("kernel headers", False, str(error), bcc_headers.remedy())
    return _check("kernel headers", True, str(place))


def _tracepoints() -> Check:
    place = tracefs.mounted()
    if place is None:
        if os.geteuid() == 0 and tracefs.absence() == "not mounted":
            return _check("tracepoints", True, "tracefs is not mounted: recording will mount it")
        return _check("tracepoints", False, f"tracefs: {tracefs.absence()}", tracefs.remedy())
    try:
        formats = tracefs.read(place, "block", [probe.tracepoint for probe in STEPS])
    except ProbeError as error:
        return _check("tracepoints", False, str(error), "run as root")
    fit = [
        probe.letter
        for probe in STEPS
        if probe.tracepoint in formats
        and not bcc_source.lacks(probe.letter, formats[probe.tracepoint])
    ]
    detail = f"{len(fit)} of {len(STEPS)} ({''.join(fit)})"
    return _check("tracepoints", set(ESSENTIAL) <= set(fit), detail, "use another kernel")
