# SPDX-License-Identifier: Apache-2.0
"""recorder/probes/capability.py: why a process may not load programs."""

import errno

import pytest

from biotrail.recorder.probes import capability
from biotrail.recorder.probes.kernel import bpf_calls
from biotrail.recorder.rights import capabilities
from biotrail.recorder.schema.errors import ProbeError


@pytest.mark.parametrize(
    ("holds", "in_host", "refused", "said"),
    [
        ({"CAP_BPF"}, True, None, "lacks CAP_PERFMON"),
        (set(), True, None, "lacks CAP_BPF and CAP_PERFMON"),
        ({"CAP_SYS_ADMIN"}, False, None, "rights in a user namespace of its own"),
        ({"CAP_BPF", "CAP_PERFMON"}, True, errno.EPERM, "may not call bpf(2)"),
        ({"CAP_BPF", "CAP_PERFMON"}, True, errno.ENOSYS, "a seccomp filter or a security module"),
    ],
)
def test_what_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, holds: set[str], in_host: bool, refused: int | None, said: str
) -> None:
    # GIVEN a process that lacks capabilities, has them in a container's user namespace alone, or
    # may not call bpf(2) with them
    monkeypatch.setattr(capabilities, "holds", holds.__contains__)
    monkeypatch.setattr(capabilities, "in_host_namespace", lambda: in_host)
    monkeypatch.setattr(bpf_calls, "refused", lambda: refused)
    # WHEN it shall record  THEN one message says which of these it is
    with pytest.raises(ProbeError, match=r"cannot record: this process .*; .*") as raised:
        capability.require_rights()
    assert said in str(raised.value)
    # AND doctor says the same
    check = capability.report()[0]
    assert (check.name, check.ok) == ("rights", False)
    assert said in check.detail


def test_enough_rights_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the two capabilities of the host, or CAP_SYS_ADMIN alone, and bpf(2)
    monkeypatch.setattr(capabilities, "in_host_namespace", lambda: True)
    monkeypatch.setattr(bpf_calls, "refused", lambda: None)
    for holds in ({"CAP_BPF", "CAP_PERFMON"}, {"CAP_SYS_ADMIN"}):
        monkeypatch.setattr(capabilities, "holds", holds.__contains__)
        # THEN nothing is in the way
        assert capability.refusal() is None
