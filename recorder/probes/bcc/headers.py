# SPDX-License-Identifier: Apache-2.0
"""Kernel headers for bcc: it compiles with some, though biotrail's programs use nothing of them.

Any kernel's will do, so the running one's are taken where they are installed, and others where
not. Debian spreads a kernel's over two directories, of which bcc takes but one by name: the other
goes by compiler flags.
"""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.schema.errors import ProbeError

NAMED = "BCC_KERNEL_SOURCE"
"""Environment variable by which users, and this module, tell bcc where headers are."""
_MODULES = Path("/lib/modules")
_KHEADERS = Path("/sys/kernel/kheaders.tar.xz")
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
_LOOK_SECONDS = 20


class Headers(NamedTuple):
    """One kernel's headers.

    directory: what bcc is told; None: it finds the running kernel's by itself. generated: the
    directory with what that kernel's configuration made, where it is another one.
    """

    directory: Path | None
    generated: Path | None = None

    def flags(self) -> list[str]:
        """Return the compiler flags that add the second directory."""
        if self.generated is None:
            return []
        places = [self.generated / "include", self.generated / "include/generated/uapi"]
        for made in sorted(self.generated.glob("arch/*/include/generated")):
            places += [made, made / "uapi"]
        return [f"-I{place}" for place in places]

    def environment(self) -> dict[str, str]:
        """Return this process's environment, with what bcc is to be told."""
        told = {} if self.directory is None else {NAMED: str(self.directory)}
        return {**os.environ, **told}


def find() -> Path | None:
    """Return where headers are: those named, the running kernel's, or another kernel's.

    None: nowhere, or what is named does not exist.
    """
    if named := os.environ.get(NAMED):
        return Path(named) if os.path.exists(named) else None
    ours = _MODULES / platform.release()
    places = [ours / "build", ours / "source", _KHEADERS, *_others()]
    return next((place for place in places if place.exists()), None)


def _others() -> list[Path]:
    """Other kernels' build directories, the newest first, of which both halves are there."""
    found = [place for place in _MODULES.glob("*/build") if _is_whole(_halves(place))]
    return sorted(found, key=lambda place: _version(place.parent.name), reverse=True)


def _version(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def _is_whole(headers: Headers) -> bool:
    common, made = headers.directory, headers.generated or headers.directory
    return (
        common is not None
        and made is not None
        and (common / "include/linux/kconfig.h").exists()
        and (made / "include/generated/autoconf.h").exists()
    )


def resolve(place: Path) -> Headers:
    """Return what bcc needs for the headers that were found at `place`. Raises ProbeError."""
    if place == _KHEADERS or _is_found_by_bcc(place):
        return Headers(None)
    if (place / "build").exists():  # /lib/modules/RELEASE
        place /= "build"
    headers = _halves(place)
    if not _is_whole(headers):
        raise ProbeError(
            f"{place} holds no whole headers of a kernel (include/linux/kconfig.h and "
            f"include/generated/autoconf.h): {_instead()}"
        )
    return headers


def _is_found_by_bcc(place: Path) -> bool:
    """Return whether these are the running kernel's in both halves, as bcc looks for them."""
    ours = _MODULES / platform.release()
    if os.environ.get(NAMED) or place.parent != ours:
        return False
    return (ours / "build").exists() and (ours / "source").exists()


def _instead() -> str:
    if os.environ.get(NAMED):
        return f"unset the environment variable {NAMED}, or name another; {remedy()}"
    return remedy()


def _halves(place: Path) -> Headers:
    if (common := _common(place)) is not None:
        return Headers(common, place)
    if not (place / "include/generated/autoconf.h").exists():
        beside = [p for p in sorted(place.parent.glob("linux-headers-*")) if _common(p) == place]
        return Headers(place, beside[-1] if beside else None)
    return Headers(place)


def _common(build: Path) -> Path | None:
    """Return the directory that Debian's Makefile in `build` includes; None: it is no such one."""
    try:
        text = (build / "Makefile").read_text(errors="replace")
    except OSError:
        return None
    found = re.match(r"include (/\S+)/Makefile\n", text)
    return Path(found[1]) if found else None


def missing() -> str:
    """Return what is said where `find` found nothing."""
    if named := os.environ.get(NAMED):
        return (
            f"{named}, which the environment variable {NAMED} names, does not exist: unset it, or "
            "name a directory with a kernel's headers"
        )
    return f"no kernel's headers are installed in {_MODULES}/*/build: {remedy()}"


def remedy() -> str:
    """Return what to install: a package that exists, as far as this system can say."""
    release = platform.release()
    machine = platform.machine()
    names = [f"linux-headers-{release}", f"linux-headers-{_DEBIAN.get(machine, machine)}"]
    names.append("linux-headers-generic")
    known = offered(names)
    if known is None:
        return (
            f"install your system's package with the headers of kernel {release} (kernel-devel, "
            "linux-headers), or of another kernel, which do as well"
        )
    package = next((name for name in names if name in known), None)
    if package == names[0]:
        return f"apt-get install {package}"
    if package is not None:
        return (
            f"apt-get install {package} (no package has those of kernel {release}; another "
            "kernel's do as well)"
        )
    return (
        "apt knows no package with them: apt-get update, and if that does not help, unpack any "
        f"kernel's headers and name their directory in the environment variable {NAMED}"
    )


def offered(names: list[str]) -> set[str] | None:
    """Return those of the packages that apt could install now; None: there is no apt."""
    try:
        done = subprocess.run(
            ["apt-cache", "madison", *names],
            capture_output=True,
            text=True,
            timeout=_LOOK_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return {line.partition("|")[0].strip() for line in done.stdout.splitlines()}
