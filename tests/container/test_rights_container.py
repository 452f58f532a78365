# SPDX-License-Identifier: Apache-2.0
"""Each right of a container of biotrail: what there is with it, and what is lost without."""

import pytest

from tests.container.conftest import BPF, Podman

RECORD = ("record", "--stacks", "--path", "--duration", "1s", "-o", "/tmp/a.biotrail")
DEVICES = "--security-opt=unmask=/sys/dev/block"
HIDDEN = "the kernel hides its symbols"


def test_the_image_is_small_and_has_no_compiler(container: Podman, image: str) -> None:
    # GIVEN the image  WHEN it is looked at
    said = container(
        "--entrypoint=sh", "--", "-c", "command -v cc gcc clang pip; du -sm /opt/biotrail"
    )
    # THEN nothing in it compiles or installs, and biotrail has its packages alone
    (size,) = said.stdout.splitlines()
    assert int(size.split()[0]) < 250


def test_two_capabilities_record(container: Podman) -> None:
    # GIVEN a container with CAP_BPF and CAP_PERFMON alone, whose seccomp profile lets bpf(2) pass
    # WHEN it records  THEN it does, and says what it lacks
    said = container(*BPF, "--", *RECORD).stderr
    assert "events in" in said
    assert HIDDEN in said
    said = container(*BPF, "--", "doctor").stdout
    assert "biotrail can record here" in said
    assert "no  raised priority" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cap-drop=all", "--cap-add=perfmon"], "lacks CAP_BPF;"),
        (["--cap-drop=all", "--cap-add=bpf"], "lacks CAP_PERFMON;"),
        (["--cap-drop=all"], "lacks CAP_BPF and CAP_PERFMON;"),
    ],
)
def test_without_either_it_does_not(container: Podman, options: list[str], said: str) -> None:
    # GIVEN a container without one of them  WHEN it shall record  THEN one message names that
    done = container("--security-opt=seccomp=unconfined", *options, "--", *RECORD, status=1)
    assert f"error: cannot record: this process {said}" in done.stderr


def test_a_seccomp_profile_that_refuses_is_named(container: Podman) -> None:
    # GIVEN podman's own profile, which in some versions lets bpf(2) pass with CAP_SYS_ADMIN alone
    options = ("--cap-drop=all", "--cap-add=bpf,perfmon")
    done = container(*options, "--", *RECORD, status=None)
    # WHEN it shall record  THEN it does, or says who is in the way
    assert done.returncode == 0 or "a seccomp filter or a security module" in done.stderr
    # AND CAP_SYS_ADMIN is enough for it
    container("--cap-drop=all", "--cap-add=sys_admin", "--", *RECORD)


def test_symbols_need_syslog(container: Podman) -> None:
    # GIVEN CAP_SYSLOG  WHEN stacks and the path are recorded  THEN there are names
    said = container(*BPF, "--cap-add=syslog", "--", *RECORD).stderr
    assert HIDDEN not in said


def test_priority_needs_sys_nice(container: Podman) -> None:
    # GIVEN CAP_SYS_NICE  WHEN doctor is asked  THEN priority can be raised
    assert "ok  raised priority" in container(*BPF, "--cap-add=sys_nice", "--", "doctor").stdout


def test_names_of_devices_need_sys_dev_block(container: Podman) -> None:
    # GIVEN podman, which masks /sys/dev/block  WHEN a device is named
    done = container(*BPF, "--", "record", "-d", "loop0", "--duration", "1s", status=1)
    # THEN it is said how to have it shown
    assert DEVICES.removeprefix("--security-opt=") in done.stderr
    assert "no  devices" in container(*BPF, "--", "doctor").stdout
    # AND then it is
    container(*BPF, DEVICES, "--", *RECORD, "-d", "loop0")


def test_process_numbers_need_the_hosts_namespace(container: Podman) -> None:
    # GIVEN a process of the host  WHEN its I/O alone is recorded
    done = container(*BPF, "--", *RECORD, "--pid", "1", status=1)
    # THEN that is refused, unless the container has the host's numbers
    assert "this is a container with numbers of its own" in done.stderr
    container(*BPF, "--pid=host", "--", *RECORD, "--pid", "1")
