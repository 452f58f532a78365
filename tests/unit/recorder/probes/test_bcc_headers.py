# SPDX-License-Identifier: Apache-2.0
"""Where bcc's headers are taken from, and what is said where there are none."""

import platform
import re
from pathlib import Path

import pytest

from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.probes.bcc.headers import Headers
from biotrail.recorder.schema.errors import ProbeError

COMMON, MADE = "include/linux/kconfig.h", "include/generated/autoconf.h"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /lib/modules, nothing named, and no headers from the kernel itself."""
    monkeypatch.setattr(bcc_headers, "_MODULES", tmp_path / "modules")
    monkeypatch.setattr(bcc_headers, "_KHEADERS", tmp_path / "none")
    monkeypatch.delenv(bcc_headers.NAMED, raising=False)
    (tmp_path / "modules").mkdir()
    return tmp_path / "modules"


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def debian(modules: Path, release: str) -> tuple[Path, Path]:
    """The package linux-headers-RELEASE and its common part, as Debian unpacks them."""
    source = modules.parent / "src"
    version, _, flavour = release.rpartition("-")
    build = source / f"linux-headers-{version}-{flavour}"
    common = source / f"linux-headers-{version}-common"
    touch(build / MADE)
    (build / "arch/x86/include/generated/uapi").mkdir(parents=True)
    touch(common / COMMON)
    (build / "Makefile").write_text(f"include {common}/Makefile\n")
    (modules / release).mkdir()
    (modules / release / "build").symlink_to(build)
    (modules / release / "source").symlink_to(common)
    return common, build


def test_the_running_kernels_headers_come_first(modules: Path) -> None:
    # GIVEN headers of the running kernel and of another one
    debian(modules, "99.1.0-1-amd64")
    debian(modules, platform.release())
    # WHEN they are looked for THEN the running kernel's are found, which bcc finds by itself
    found = bcc_headers.find()
    assert found == modules / platform.release() / "build"
    assert bcc_headers.resolve(found) == Headers(None)


def test_another_kernels_two_directories_are_brought_together(modules: Path) -> None:
    # GIVEN headers of two other kernels alone, as Debian 12 has them
    debian(modules, "6.1.0-9-amd64")
    common, _ = debian(modules, "6.1.0-50-amd64")
    # WHEN they are looked for THEN it is the newest's, whose second half goes by flags
    found = bcc_headers.find()
    assert found == modules / "6.1.0-50-amd64/build"
    headers = bcc_headers.resolve(found)
    assert headers.directory == common
    assert f"-I{found}/include" in headers.flags()
    assert f"-I{found}/arch/x86/include/generated/uapi" in headers.flags()
    assert headers.environment()[bcc_headers.NAMED] == str(common)


@pytest.mark.parametrize("which", ["build", "common", "release", "whole"])
def test_every_directory_that_users_name_will_do(
    modules: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    # GIVEN a directory that is one half, has links to both, or holds all
    common, build = debian(modules, "6.1.0-50-amd64")
    whole = modules.parent / "whole"
    touch(whole / COMMON)
    touch(whole / MADE)
    places = {"build": build, "common": common, "release": modules / "6.1.0-50-amd64"}
    place = {**places, "whole": whole}[which]
    # WHEN it is named
    monkeypatch.setenv(bcc_headers.NAMED, str(place))
    found = bcc_headers.find()
    assert found == place
    headers = bcc_headers.resolve(found)
    # THEN bcc is told of both halves
    assert headers.directory == (whole if which == "whole" else common)
    assert bool(headers.flags()) == (which != "whole")


def test_of_several_flavours_the_running_kernels_is_taken(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a common directory with headers of three flavours
    for flavour in ("amd64", "cloud-amd64", "rt-amd64"):
        build = modules.parent / f"src/linux-headers-6.1.0-50-{flavour}"
        touch(build / MADE)
        common = modules.parent / "src/linux-headers-6.1.0-50-common"
        (build / "Makefile").write_text(f"include {common}/Makefile\n")
    touch(common / COMMON)
    # WHEN the common directory is named, on a kernel of the first flavour, or of none of them
    for release, expected in (("6.1.0-50-amd64", "amd64"), ("6.2.0-1-amd64", "rt-amd64")):
        monkeypatch.setattr(platform, "release", lambda release=release: release)
        headers = bcc_headers.resolve(common)
        # THEN the running kernel's are taken, else the last by name
        assert headers.generated is not None
        assert headers.generated.name == f"linux-headers-6.1.0-50-{expected}"


def test_what_is_named_and_no_use_is_told(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a directory that does not exist WHEN it is named THEN nothing else is taken for it
    debian(modules, "6.1.0-50-amd64")
    monkeypatch.setenv(bcc_headers.NAMED, "/no/such")
    assert bcc_headers.find() is None
    assert "/no/such" in bcc_headers.missing()
    assert "unset it" in bcc_headers.missing()
    # AND one without headers is refused by its name
    with pytest.raises(ProbeError, match=f"{modules} holds no whole headers .*unset the"):
        bcc_headers.resolve(modules)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ({0, 1}, f"apt-get install linux-headers-{platform.release()}"),
        ({1, 2}, r"apt-get install linux-headers-\w+ \(no package has those of kernel"),
        ({2}, r"apt-get install linux-headers-generic \("),
        (set(), "apt knows no package"),
        (None, "your system's package"),
    ],
)
def test_the_remedy_names_a_package_that_exists(
    modules: Path, monkeypatch: pytest.MonkeyPatch, offered: set[int] | None, expected: str
) -> None:
    # GIVEN a system whose apt knows some packages, or none, or has no apt
    def known(names: list[str]) -> set[str] | None:
        return None if offered is None else {names[number] for number in offered}

    monkeypatch.setattr(bcc_headers, "offered", known)
    # WHEN there are no headers THEN the remedy is one of those, or says that there is none
    assert bcc_headers.find() is None
    assert re.search(expected, bcc_headers.missing())


def test_apt_is_asked_for_what_it_can_install() -> None:
    # GIVEN names that no distribution has WHEN apt is asked THEN none is offered
    assert not bcc_headers.offered(["linux-headers-no-such-kernel"])
