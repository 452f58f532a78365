# SPDX-License-Identifier: Apache-2.0
"""Which capabilities a recording goes on needing once its programs are attached."""

import errno
import os
import stat
from contextlib import suppress
from typing import Any

from biotrail.recorder.output import output
from biotrail.recorder.probes.stack_maps import Stacks
from biotrail.recorder.rights import capabilities, priority, rights
from biotrail.recorder.rights.rights import Lack, Trial
from biotrail.recorder.session.session_types import Probes, RecordOptions

_FOR_PROGRAMS = ("CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH")
"""To read what a process has mapped, by /proc/PID/maps and map_files, and those files."""


def needed(options: RecordOptions) -> set[str]:
    """What these options will need, whatever the kernel and the directory are like.

    CAP_KILL: to end a command that became another user. Files to come that are given to the
    user who called sudo: CAP_CHOWN to give, CAP_DAC_OVERRIDE to give them their names in
    that user's directory, CAP_FOWNER to delete them where that is sticky. Names in call stacks:
    CAP_SYSLOG for the kernel's when modules come, the others for programs that begin later.
    """
    found = {"CAP_KILL"} if options.command else set()
    found |= {"CAP_SYSLOG"} if options.stacks else set()
    found |= set(_FOR_PROGRAMS) if options.stacks >= Stacks.USER else set()
    if (directory := _directory_of_more(options)) is not None and output.owner() is not None:
        found |= {"CAP_CHOWN", "CAP_DAC_OVERRIDE"}
        found |= {"CAP_FOWNER"} if _sticky_of_another(directory) else set()
    return found


def trials(options: RecordOptions, probes: Probes) -> list[Trial]:
    """What may need a right here and not elsewhere.

    Before 5.19, with kernel.unprivileged_bpf_disabled, bpf(2) asks for CAP_BPF even where a
    program's or map's descriptor is at hand.
    """
    bpf = "CAP_BPF" if capabilities.holds("CAP_BPF") else "CAP_SYS_ADMIN"
    found = [Trial(probes.programs, {bpf}), Trial(_check_priority, {"CAP_SYS_NICE"})]
    if (directory := _directory_of_more(options)) is not None and output.owner() is None:
        found.append(Trial(lambda: _make_nameless_file(directory), {"CAP_DAC_OVERRIDE"}))
    return found


def _check_priority() -> None:
    if not priority.permitted():
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def lacking(options: RecordOptions) -> list[Lack]:
    """What will not work with the rights at hand, of what these options ask for."""
    found = rights.lacking()
    return [lack for lack in found if lack.key != "processes" or options.filters.children]


def facts(found: list[Lack]) -> dict[str, Any]:
    """For a log's header."""
    lacks = [{"what": lack.what, "needs": lack.needs} for lack in found]
    return {"uid": os.geteuid(), "lacking": lacks}


def _directory_of_more(options: RecordOptions) -> str | None:
    """Where files will be made while it records; None: no more are."""
    if options.output is None or (options.rotate is None and options.keep is None):
        return None
    return os.path.dirname(options.output) or "."


def _sticky_of_another(directory: str) -> bool:
    with suppress(OSError):  # making the file will say it
        found = os.stat(directory)
        return bool(found.st_mode & stat.S_ISVTX) and found.st_uid != os.geteuid()
    return False


def _make_nameless_file(directory: str) -> None:
    """Raises OSError where this process may not, or where the file system has no such files."""
    os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, output.PRIVATE_FILE))


def reduce(options: RecordOptions, probes: Probes) -> tuple[list[str] | None, str]:
    """Give up the calling thread's other capabilities: those that are left, and a warning.

    None: it failed, and recording goes on with what it had. No warning: an empty text.
    """
    if capabilities.holds("CAP_SYS_NICE"):
        priority.permit()
    try:
        kept = rights.give_up(needed(options), trials(options, probes))
    except (OSError, AttributeError) as error:  # AttributeError: a C library without capset
        return None, f"could not give up the rights it no longer needs ({error}); it keeps them"
    if others := rights.threads_with_more(capabilities.mask(kept)):
        who = ", ".join(others)
        return kept, f"threads of a library keep rights that recording no longer needs: {who}"
    return kept, ""
