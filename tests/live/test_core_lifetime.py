# SPDX-License-Identifier: Apache-2.0
"""What is loaded and attached is gone with the recording, however it ends; errors name a remedy."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.core_decoder import decode
from tests.support.kernel_completions import done_again
from tests.support.paths import ROOT
from tests.support.record_command import wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

PREEMPTION = ("bpf_preempt_disable", "bpf_preempt_enable")
HOLD = """
import sys, time
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
probes = CoreProbes(ProbeConfig())
probes.open()
probes.attach()
print(" ".join(str(probes._object.info(p.name).id) for p in probes.programs() if p.attached))
sys.stdout.flush()
time.sleep(1000)
"""


def _loaded():
    """Ids of the programs and maps that the kernel holds now."""
    if shutil.which("bpftool") is None:
        pytest.skip("needs bpftool")
    done = subprocess.run(
        ["bpftool", "--json", "prog", "show"], capture_output=True, text=True, check=True
    )
    return {program["id"]: program.get("name", "") for program in json.loads(done.stdout)}


def _ids(probes):
    return {probes._object.info(p.name).id for p in probes.programs() if p.name}


def _gone(ids):
    """Programs are freed after a grace period."""
    wait_until(lambda: not ids & set(_loaded()), "the programs are still there")
    return True


def test_everything_is_gone_after_close():
    # GIVEN attached probes
    probes = CoreProbes(ProbeConfig())
    probes.open()
    probes.attach()
    ids = _ids(probes)
    assert ids <= set(_loaded())
    assert {_loaded()[number] for number in ids} >= {"bt_queue", "bt_issue", "bt_complete"}

    # WHEN they are closed, twice
    probes.close()
    probes.close()

    # THEN the kernel holds none of them
    assert _gone(ids)


def test_everything_is_gone_after_kill():
    # GIVEN a process that records
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        ids = {int(number) for number in process.stdout.readline().split()}
        assert ids
        assert ids <= set(_loaded())
        # WHEN it is killed
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    # THEN the kernel holds none of its programs
    assert _gone(ids)


def test_two_recordings_at_once(loop_device):
    # GIVEN two recordings
    with CoreProbes(ProbeConfig()) as one, CoreProbes(ProbeConfig("minimal")) as two:
        one.attach()
        two.attach()
        # WHEN something is read
        fd = os.open(loop_device.path, os.O_RDONLY)
        os.pread(fd, 4096, 0)
        os.close(fd)
        # THEN both have it
        assert one.drain()
        assert two.drain()


@pytest.mark.parametrize("missing", ["nothing", "bpf_local_irq_save"])
@done_again
def test_programs_that_hold_preemption_off_record(loop_device, monkeypatch, missing):
    # GIVEN the programs for kernels whose tracepoints leave preemption on, with interrupts held off
    # at their end, or not, as the kernel offers it
    with KernelBtf() as btf:
        offered = all(btf.has_function(name) for name in PREEMPTION)
    if not offered:
        pytest.skip("this kernel cannot hold preemption off in programs")
    has = KernelBtf.has_function
    monkeypatch.setattr(
        KernelBtf, "has_function", lambda self, name: name != missing and has(self, name)
    )
    config = ProbeConfig("minimal", [(loop_device.dev, 0)], preemptible=True)
    # WHEN something is read
    with CoreProbes(config) as probes:
        probes.attach()
        devices.run(
            "dd", f"if={loop_device.path}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"
        )
        segments, names = probes.drain(), {program.name for program in probes.programs()}
    # THEN it was seen by them
    assert "bt_queue_p" in names
    assert [e.bytes for e in decode(segments).of(Kind.C, dev=loop_device.dev)] == [4096]


def test_every_tracepoint_is_accounted_for():
    # GIVEN probes of the default set
    with CoreProbes(ProbeConfig()) as probes:
        probes.attach()
        # WHEN their programs are listed
        programs = {p.letter: p for p in probes.programs()}

    # THEN each letter is attached or has a reason
    assert set("QGMFXAcsIRmDCEdPUaL") == set(programs)
    assert all(p.attached != bool(p.reason) for p in programs.values())
    assert all(p.recursion_misses >= 0 for p in programs.values())


def test_a_file_that_is_no_object_is_refused(tmp_path):
    # GIVEN a file that is no BPF object
    path = tmp_path / "broken.bpf.o"
    path.write_bytes(b"no object")

    # WHEN it is opened
    # THEN the message names it
    with pytest.raises(ProbeError, match=r"broken\.bpf\.o cannot be read"):
        CoreProbes(ProbeConfig(), path).open()


def test_missing_rights_are_named():
    # GIVEN a process without privileges
    code = (
        "import os; from biotrail.recorder.schema.errors import ProbeError\n"
        "from biotrail.recorder.probes.backend import ProbeConfig\n"
        "from biotrail.recorder.probes.core import CoreProbes\n"
        "from biotrail.recorder.probes.core import object_path\n"
        "probes = CoreProbes(ProbeConfig(), object_path())\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n    probes.open()\nexcept ProbeError as error:\n    print(error)\n"
    )
    # WHEN it opens the probes
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    # THEN one message names the right that is missing
    assert "CAP_BPF" in done.stdout, done.stderr
    assert "root" in done.stdout
    assert done.stderr == ""


def test_probes_that_are_not_open_say_so():
    # GIVEN probes that were never opened
    # WHEN they are drained
    # THEN the message says what to do
    with pytest.raises(ProbeError, match="call open"):
        CoreProbes(ProbeConfig()).drain()
