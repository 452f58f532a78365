# SPDX-License-Identifier: Apache-2.0
"""The beginning of a recorder file: checks where it runs, then lets shiv unpack and start it.

scripts/recorder_file.py puts it into the file, with what the file needs. Any Python has to be able
to compile it, so that an old one gives the message, too.
"""

import os
import platform
import stat
import sys

NEEDS = {}  # filled in: python, machine, glibc, size


def fail(message):
    sys.stderr.write("biotrail: error: %s\n" % message)
    sys.exit(1)


def check_machine():
    """End, or go on as another Python, unless this one, its machine and its glibc suit the file."""
    version = "%d.%d" % sys.version_info[:2]
    if version != NEEDS["python"]:
        name = "python" + NEEDS["python"]
        if "BIOTRAIL_PYTHON_SOUGHT" not in os.environ:
            os.environ["BIOTRAIL_PYTHON_SOUGHT"] = "1"
            try:
                os.execvp(name, [name] + sys.argv)
            except OSError:
                pass
        if sys.version_info >= (3, 11):
            other = "take the file whose name has cp" + version.replace(".", "")
        else:
            other = "biotrail needs Python 3.11 or later"
        fail(
            "this file is for Python %s, and this is Python %s; there is no command %s: %s"
            % (NEEDS["python"], version, name, other)
        )
    os.environ.pop("BIOTRAIL_PYTHON_SOUGHT", None)
    if platform.machine() != NEEDS["machine"]:
        fail(
            "this file is for %s, and this machine is %s: take the file whose name has that"
            % (NEEDS["machine"], platform.machine())
        )
    name, glibc = platform.libc_ver()
    wanted = [int(part) for part in NEEDS["glibc"].split(".")]
    if name != "glibc" or [int(part) for part in glibc.split(".")[:2]] < wanted:
        fail(
            "this file needs glibc %s or later, and here is %s"
            % (NEEDS["glibc"], (name + " " + glibc).strip() or "another C library")
        )


def choose_place():
    """Return the directory to unpack into: this user's, and closed to others."""
    place = os.environ.get("SHIV_ROOT")
    if not place:
        home = os.path.join(os.path.expanduser("~"), ".cache")
        place = os.path.join("/var/cache" if os.geteuid() == 0 else home, "biotrail")
    place = os.path.abspath(place)
    other = "choose another one: SHIV_ROOT=DIRECTORY"
    try:
        os.makedirs(place, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        fail("%s: cannot be made: %s; %s" % (place, error.strerror, other))
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        fail(
            "%s: not a directory of user %d alone (mode 0700), where nobody else can change what "
            "runs; %s" % (place, os.geteuid(), other)
        )
    system = os.statvfs(place)
    if system.f_flag & os.ST_NOEXEC:
        fail("%s: mounted noexec, so compiled modules cannot run; %s" % (place, other))
    return place, system.f_bavail * system.f_frsize


def main():
    """Check, say what is unpacked where, and start biotrail."""
    check_machine()
    place, free = choose_place()
    os.environ["SHIV_ROOT"] = place
    # shiv is not importable before: it needs a Python that the check lets pass.
    from _bootstrap import Environment, bootstrap, cache_path, current_zipfile

    with current_zipfile() as archive:
        build = Environment.from_json(archive.read("environment.json").decode()).build_id
        unpacked = cache_path(archive, place, build)
    if not (unpacked / "site-packages").exists():
        if free < NEEDS["size"]:
            fail(
                "%s: %d MB are needed to unpack, %d MB are free; choose another one: "
                "SHIV_ROOT=DIRECTORY" % (place, NEEDS["size"] // 10**6, free // 10**6)
            )
        sys.stderr.write(
            "biotrail: unpacking %d MB to %s, once\n" % (NEEDS["size"] // 10**6, unpacked)
        )
    try:
        bootstrap()
    except KeyboardInterrupt:  # while it is unpacked; what is missing then is unpacked next time
        sys.exit(130)
