# SPDX-License-Identifier: Apache-2.0
"""Records with the bcc backend, alone or beside core, and finds it headers to compile with."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.core import CoreProbes
from tests.support.core_recording import Recording

SOURCES = Path("/usr/src")


def headers_for_tests(directory: Path) -> Path | None:
    """A kernel source tree for bcc: this kernel's, else any that Debian has installed.

    Another kernel's does, as biotrail takes nothing from it. Debian spreads one over two
    directories; links in `directory` bring them together, so nothing outside is touched.
    """
    found = bcc_headers.find()
    if found is not None:
        return found
    for build in sorted(SOURCES.glob("linux-headers-*")):
        common = SOURCES / f"{build.name.rpartition('-')[0]}-common"
        if not (common / "include/linux/kconfig.h").exists() or build == common:
            continue
        for place in ("include", "arch/x86/include", "arch/arm64/include"):
            (directory / place).mkdir(parents=True)
            for source in (common, build):
                for entry in (source / place).glob("*"):
                    (directory / place / entry.name).symlink_to(entry)
        return directory
    return None


@pytest.fixture(scope="module")
def needs_bcc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Skip unless bcc can compile here; BCC_KERNEL_SOURCE says with which headers."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if bcc_child.find_bcc() is None:
        pytest.skip("bcc: python3-bpfcc is not installed")
    headers = headers_for_tests(tmp_path_factory.mktemp("headers"))
    if headers is None:
        pytest.skip("bcc: no kernel headers are installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BCC_KERNEL_SOURCE", str(headers))
        yield


@contextmanager
def both(
    events: str, devices: list[tuple[int, int]], filters: Filters | None = None
) -> Iterator[tuple[Recording, Recording]]:
    """(core, bcc), of the same time, devices and filters."""
    config = ProbeConfig(events, devices, filters=filters or Filters())
    with ExitStack() as stack:
        records = [
            Recording(stack.enter_context(probes))
            for probes in (CoreProbes(config), BccProbes(config))
        ]
        for record in records:
            record.start()
        try:
            yield records[0], records[1]
        finally:
            for record in records:
                record.finish()
                record.left_out = record.probes.left_out()
