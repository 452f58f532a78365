# SPDX-License-Identifier: Apache-2.0
"""Finds kernel headers for bcc, which refuses to compile without, though the programs need none.

Headers of any kernel do: the running kernel's if they are installed, else another's. Debian
spreads a kernel's headers over two directories, of which bcc accepts one by an environment
variable; the other one is passed by compiler flags.
"""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.schema.errors import ProbeError

NAMED = "BCC_KERNEL_SOURCE"
"""Environment variable with the headers' directory, read by bcc; users may set it."""
_MODULES = Path("/lib/modules")
_KHEADERS = Path("/sys/kernel/kheaders.tar.xz")
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
_LOOK_SECONDS = 20


class Headers(NamedTuple):
    """One kernel's headers.

    directory: for bcc's environment variable; None: bcc finds the running kernel's headers by
    itself. generated: the directory with include/generated, if that is not `directory`; else None.
    """

    directory: Path | None
    generated: Path | None = None

    def flags(self) -> list[str]:
        """Return the compiler flags (-I…) that add the headers in `generated`, of any machine."""
        if self.generated is None:
            return []
        places = [self.generated / "include", self.generated / "include/generated/uapi"]
        for made in sorted(self.generated.glob("arch/*/include/generated")):
            places += [made, made / "uapi"]
        return [f"-I{place}" for place in places]


def find() -> Path | None:
    """Return where kernel headers are: in NAMED if set, the running kernel's, or another's."""
    if named := os.environ.get(NAMED):
        return Path(named) if os.path.exists(named) else None
    ours = _MODULES / platform.release()
    others = [place for place in _MODULES.glob("*/build") if _is_complete(_directories(place))]
    others.sort(key=lambda build: [*map(int, re.findall(r"\d+", build.parent.name))], reverse=True)
    places = [ours / "build", ours / "source", _KHEADERS, *others]
    return next((place for place in places if place.exists()), None)


def _is_complete(headers: Headers) -> bool:
    common, made = headers.directory, headers.generated or headers.directory
    return (
        common is not None
        and made is not None
        and (common / "include/linux/kconfig.h").exists()
        and (made / "include/generated/autoconf.h").exists()
    )


def resolve(place: Path) -> Headers:
    """Return the headers at `place` as bcc needs them.

    `place`: a build or source directory, /lib/modules/RELEASE or kheaders.tar.xz. Headers(None),
    not checked, for what bcc finds by itself. Raises ProbeError: the headers are not complete.
    """
    ours = _MODULES / platform.release()
    both = (ours / "build").exists() and (ours / "source").exists()
    if place == _KHEADERS or (place.parent == ours and both and not os.environ.get(NAMED)):
        return Headers(None)
    if (place / "build").exists():  # /lib/modules/RELEASE
        place /= "build"
    headers = _directories(place)
    if not _is_complete(headers):
        instead = ""
        if os.environ.get(NAMED):
            instead = f"unset the environment variable {NAMED}, or name another; "
        raise ProbeError(
            f"{place} holds no whole headers of a kernel (include/linux/kconfig.h and "
            f"include/generated/autoconf.h): {instead}{remedy()}"
        )
    return headers


def _directories(place: Path) -> Headers:
    """Return the headers at `place`, of several flavours the running kernel's, else the last."""
    if (common := _common(place)) is not None:
        return Headers(common, place)
    if not (place / "include/generated/autoconf.h").exists():
        ours = f"linux-headers-{platform.release()}"
        beside = [p for p in place.parent.glob("linux-headers-*") if _common(p) == place]
        beside.sort(key=lambda path: (path.name == ours, path.name))
        return Headers(place, beside[-1] if beside else None)
    return Headers(place)


def _common(build: Path) -> Path | None:
    """Return the -common directory that the Makefile in `build` includes, as Debian's do."""
    try:
        text = (build / "Makefile").read_text(errors="replace")
    except OSError:
        return None
    include = re.match(r"include (/\S+)/Makefile\n", text)
    return Path(include[1]) if include else None


def missing() -> str:
    """Return the user's message for where `find` returns None: what is wrong, what to do."""
    if named := os.environ.get(NAMED):
        return (
            f"{named}, which the environment variable {NAMED} names, does not exist: unset it, or "
            "name a directory with a kernel's headers"
        )
    return f"no kernel's headers are installed in {_MODULES}/*/build: {remedy()}"


def remedy() -> str:
    """Return advice for users on which package with kernel headers to install. Runs apt-cache."""
    release = platform.release()
    machine = platform.machine()
    names = [f"linux-headers-{release}", f"linux-headers-{_DEBIAN.get(machine, machine)}"]
    names.append("linux-headers-generic")
    in_apt = offered(names)
    if in_apt is None:
        return (
            f"install your system's package with the headers of kernel {release} (kernel-devel, "
            "linux-headers), or of another kernel, which do as well"
        )
    package = next((name for name in names if name in in_apt), None)
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
    """Return which of the packages `names` apt can install (apt-cache madison); None: no apt."""
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
