# SPDX-License-Identifier: Apache-2.0
"""What is loaded and attached is gone with the recording, however it ends; errors name a remedy."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.probes import core
from biotrail.recorder.probes import programs as program_table
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.core_decoder import decode
from tests.support.kernel_completions import done_again
from tests.support.paths import ROOT
from tests.support.record_command import BIOTRAIL, environment, started, wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

PREEMPTION = ("bpf_preempt_disable", "bpf_preempt_enable")


def _loaded():
    """Names of the programs that the kernel holds now, by id."""
    if shutil.which("bpftool") is None:
        pytest.skip("needs bpftool")
    programs = json.loads(devices.run("bpftool", "--json", "prog", "show"))
    return {program["id"]: program.get("name", "") for program in programs}


def _programs_of(pid):
    """Ids of the programs that a process has descriptors of."""
    found = set()
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found |= {int(n) for n in re.findall(r"^prog_id:\s*(\d+)", path.read_text(), re.M)}
    return found


def _assert_gone(ids):
    # Programs are freed after a grace period.
    wait_until(lambda: not ids & set(_loaded()), "the programs are still there")


def test_everything_is_gone_after_close():
    # GIVEN attached probes
    probes = CoreProbes(ProbeConfig())
    probes.open()
    probes.attach()
    ids = _programs_of(os.getpid())
    assert {_loaded()[number] for number in ids} >= {"bt_queue", "bt_issue", "bt_complete"}

    # WHEN they are closed, twice
    probes.close()
    probes.close()

    # THEN the kernel holds none of them
    _assert_gone(ids)


@pytest.mark.parametrize(
    "words",
    [
        ("record",),
        ("record", "--path"),
        ("pairs", "softirq,ext4-fsync,block"),
        ("follow", "request", "--way", "typed"),
    ],
    ids=" ".join,
)
def test_everything_is_gone_after_kill(tmp_path, words):
    # GIVEN a recording
    log = tmp_path / "killed.biotrail"
    command = [*BIOTRAIL, *words, "-o", log]
    with started(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert any(re.search("recording|following", line) for line in process.stderr)
        wait_until(
            lambda: len(_programs_of(process.pid)) >= 6 and log.exists(), "nothing is recorded"
        )
        ids = _programs_of(process.pid)
        assert ids <= set(_loaded())
        # WHEN it is killed
        process.kill()
    # THEN the kernel holds none of its programs
    _assert_gone(ids)
    # AND the log is readable
    assert LogReader(log).header["host"]


@pytest.mark.parametrize("missing", ["nothing", "bpf_local_irq_save"])
@done_again
def test_programs_that_hold_preemption_off_record(loop_device, monkeypatch, missing):
    # GIVEN the programs for kernels whose tracepoints leave preemption on, with interrupts held off
    # at their end, or not, as the kernel offers it
    with KernelBtf() as btf:
        offered = all(btf.function_id(name) for name in PREEMPTION)
    if not offered:
        pytest.skip("this kernel cannot hold preemption off in programs")
    find = KernelBtf.function_id
    monkeypatch.setattr(
        KernelBtf, "function_id", lambda self, name: None if name == missing else find(self, name)
    )
    for module in (core, program_table):
        monkeypatch.setattr(module, "is_preemptible", lambda btf: True)
    config = ProbeConfig("minimal", [(loop_device.dev, 0)])
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
