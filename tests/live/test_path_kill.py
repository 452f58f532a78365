# SPDX-License-Identifier: Apache-2.0
"""The programs of the path beside the block layer are gone with their process."""

import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support import devices
from tests.support.paths import ROOT
from tests.support.record_command import wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

HOLD = """
import sys, time
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import PATH_PARTS
probes = CoreProbes(ProbeConfig(path=frozenset(PATH_PARTS)))
probes.open()
probes.attach()
print(" ".join(str(probes._object.info(name).id) for _, name in probes.path.programs))
sys.stdout.flush()
time.sleep(1000)
"""


def test_the_paths_programs_are_gone_after_kill() -> None:
    # GIVEN a process that records the path
    if shutil.which("bpftool") is None:
        pytest.skip("needs bpftool")

    def loaded() -> set[int]:
        said = devices.run("bpftool", "prog", "show")
        return {int(number) for number in re.findall(r"^(\d+): ", said, re.MULTILINE)}

    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        ids = {int(number) for number in process.stdout.readline().split()}
        assert len(ids) >= 10  # as many as this kernel has tracepoints for
        assert ids <= loaded()
        # WHEN it is killed
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    # THEN the kernel frees all of them
    wait_until(lambda: not ids & loaded(), "the programs are still there")
