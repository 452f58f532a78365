# SPDX-License-Identifier: Apache-2.0
"""Decides which capabilities a recording needs once its programs are attached, and drops others."""

import os
import stat
from contextlib import suppress

from biotrail.recorder.output import folders
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.rights import capabilities, priority, rights
from biotrail.recorder.rights.rights import Trial
from biotrail.recorder.session.session_types import RecordOptions


def needed(options: RecordOptions, probes: Probes) -> tuple[set[str], list[Trial]]:
    """Return (capabilities that are needed in any case, actions to try without any).

    CAP_KILL for a command, which may change its user. CAP_SYSLOG for kernel symbols of modules
    loaded later; for programs started later those to read /proc/PID/maps, /proc/PID/map_files and
    the files mapped there. Reading the programs' counters is tried: before 5.19, with
    kernel.unprivileged_bpf_disabled, bpf(2) requires the capability even for an open descriptor.

    If files are made while recording, and the user called sudo: CAP_CHOWN to give them to that
    user, CAP_DAC_OVERRIDE to rename them in that user's directory, CAP_FOWNER to delete them there
    if it is sticky and another user's. Else making one in the output's directory is tried.
    """
    names = {"CAP_KILL"} if options.command else set()
    if options.stacks or "fs" in options.path or probes.capabilities.site_stacks:
        names |= {"CAP_SYSLOG"}
    if options.stacks >= Stacks.USER:
        names |= {"CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH"}
    bpf = "CAP_BPF" if capabilities.holds("CAP_BPF") else "CAP_SYS_ADMIN"
    trials: list[Trial] = [(probes.programs, bpf)]
    if options.output is None or (options.rotate is None and options.keep is None):
        return names, trials
    directory = os.path.dirname(options.output) or "."

    def make_nameless_file() -> None:
        flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
        os.close(os.open(directory, flags, folders.PRIVATE_FILE))

    if folders.owner() is None:
        trials.append((make_nameless_file, "CAP_DAC_OVERRIDE"))
        return names, trials
    names |= {"CAP_CHOWN", "CAP_DAC_OVERRIDE"}
    with suppress(OSError):  # reported when the first file is made
        status = os.stat(directory)
        if status.st_mode & stat.S_ISVTX and status.st_uid != os.geteuid():
            names |= {"CAP_FOWNER"}
    return names, trials


def reduce(options: RecordOptions, probes: Probes) -> tuple[list[str] | None, str]:
    """Give up the calling thread's capabilities but those that recording needs, for good.

    Kept are, of those held, what is `needed` or what a failing trial requires, and CAP_SYS_NICE
    where RLIMIT_RTPRIO, which is raised first if possible, does not permit real-time priority
    without. Returns (names of the capabilities kept, warning or
    ""); (None, warning) where they could not be given up.
    """
    if capabilities.holds("CAP_SYS_NICE"):
        priority.permit()
    try:
        names, trials = needed(options, probes)
        names |= set() if priority.permitted() else {"CAP_SYS_NICE"}
        kept = rights.give_up(names, trials)
    except (OSError, AttributeError) as error:  # AttributeError: a C library without capset
        return None, f"could not give up the rights it no longer needs ({error}); it keeps them"
    warnings = []
    try:
        capabilities.gain_no_more()
    except (OSError, AttributeError) as error:
        warnings.append(f"programs that it starts may gain rights that it gave up ({error})")
    if others := rights.threads_with_more(capabilities.mask(kept)):
        who = ", ".join(others)
        warnings.append(f"threads of a library keep rights that recording no longer needs: {who}")
    return kept, "; ".join(warnings)
