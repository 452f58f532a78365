# SPDX-License-Identifier: Apache-2.0
"""Which backend is taken, and what is said where bcc cannot be."""

from pathlib import Path

import pytest

from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.probes import capability
from biotrail.recorder.probes.backend import Capabilities, ProbeConfig, make_probes
from biotrail.recorder.probes.bcc import capability as bcc_capability
from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.probes.bcc import load as bcc_load
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.file_ways import NO_FILES
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.maps.stack_maps import FreshStacks
from biotrail.recorder.schema.errors import ProbeError


@pytest.mark.parametrize(
    ("backend", "btf", "expected"),
    [
        ("auto", True, CoreProbes),
        ("auto", False, BccProbes),
        ("bcc", True, BccProbes),
        ("core", False, CoreProbes),
    ],
)
def test_auto_goes_by_the_kernels_types(
    backend: str, btf: bool, expected: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a kernel with or without BTF
    path = tmp_path / "vmlinux"
    if btf:
        path.touch()
    monkeypatch.setattr(capability, "BTF_PATH", path)
    # WHEN a backend is chosen THEN it is the one that fits, or the one asked for
    assert isinstance(make_probes(backend, ProbeConfig()), expected)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ProbeError, match="choose one of auto, core, bcc"):
        make_probes("kprobe", ProbeConfig())


def test_what_a_backend_cannot_do_finds_nothing() -> None:
    # GIVEN the bcc backend, which declares neither stacks, files, triggers nor own files
    probes = make_probes("bcc", ProbeConfig())
    assert probes.capabilities == Capabilities("bcc")
    # WHEN a session calls what belongs to them THEN there is nothing, and no error
    assert probes.files == NO_FILES
    assert probes.triggered() == []
    assert probes.fresh_stacks() == FreshStacks({}, {}, {})
    probes.own_file(OwnFile(1, 1, None))
    # AND core declares them all
    core = make_probes("core", ProbeConfig()).capabilities
    assert all(core._replace(site_stacks=True))  # these are of `follow` alone


def test_missing_bcc_and_headers_have_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN a machine without bcc
    monkeypatch.setattr(bcc_child, "find_bcc", lambda: None)
    # WHEN it is needed THEN the package is named
    with pytest.raises(ProbeError, match="apt-get install python3-bpfcc"):
        bcc_load.require()
    # AND without headers likewise
    monkeypatch.setattr(bcc_child, "find_bcc", lambda: "/somewhere/bcc")
    monkeypatch.setattr(bcc_load, "headers", lambda: None)
    monkeypatch.setattr(bcc_headers, "offered", lambda names: {names[0]})
    with pytest.raises(ProbeError, match="apt-get install linux-headers-"):
        bcc_load.require()
    # AND doctor says the same
    checks = bcc_capability.report()
    assert not bcc_capability.possible(checks)
    assert any("linux-headers-" in check.remedy for check in checks if not check.ok)
    assert not any(check.required for check in checks)


def test_another_package_named_bcc_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN two packages of the name, the second of them the one with the library
    for name, library in (("first", False), ("second", True)):
        (tmp_path / name / "bcc").mkdir(parents=True)
        (tmp_path / name / "bcc" / "__init__.py").write_text("WHO = __name__\n")
        if library:
            (tmp_path / name / "bcc" / "libbcc.py").touch()
    places = tuple(str(tmp_path / name) for name in ("first", "second"))
    monkeypatch.setattr(bcc_child, "_PLACES", places)
    # WHEN bcc is looked for THEN it is the one
    assert bcc_child.find_bcc() == str(tmp_path / "second" / "bcc")


def test_of_several_pythons_the_newest_ones_bcc_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN bcc for three versions of Python, in directories that sort otherwise as text
    for place in ("lib/python3.9", "lib/python3.11", "lib64/python3.10"):
        package = tmp_path / place / "site-packages" / "bcc"
        package.mkdir(parents=True)
        (package / "libbcc.py").touch()
    monkeypatch.setattr(bcc_child, "_PLACES", (f"{tmp_path}/lib*/python3*/*-packages",))
    # WHEN bcc is looked for THEN it is that of the newest
    expected = tmp_path / "lib" / "python3.11" / "site-packages" / "bcc"
    assert bcc_child.find_bcc() == str(expected)


def test_what_went_wrong_in_bcc_is_told_in_a_few_lines() -> None:
    # GIVEN what bcc prints
    said = "warning: x\n" * 50 + "/virtual/main.c:3:1: error: unknown type name 'foo'\n"
    # WHEN it failed THEN the lines that tell are quoted
    error = bcc_load.failure("Exception: Failed to compile BPF module <text>", said)
    assert "unknown type name" in str(error)
    assert str(error).count("\n") < 10
    # AND rings that are too big are told apart, so that smaller ones are tried
    too_big = bcc_load.failure("Exception: x", "could not open bpf map: Argument list too long")
    assert isinstance(too_big, bcc_load.TooBigError)
    # AND a bcc that this Python cannot import names both
    assert "does not work with Python" in str(bcc_load.failure("ImportError: no", ""))


def test_tracefs_that_cannot_be_mounted_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN no tracefs, and no place to mount it
    monkeypatch.setattr(tracefs, "PLACES", (tmp_path / "nowhere",))
    # WHEN it is needed THEN the remedy is the command
    with pytest.raises(ProbeError, match="mount -t tracefs tracefs"):
        tracefs.find()
