# SPDX-License-Identifier: Apache-2.0
"""Which programs record the commits of jbd2's journals (bpf/journal.h), in the kernel or a module.

The part fs does without them: a kernel whose jbd2 is a module has its tracepoints' types only where
modules have BTF (since 5.11) and while the module is loaded.
"""

from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.rights import capabilities

PART = "fs"
COMMITS = "fs (commits of jbd2)"
"""By this name the log's header says why commits are not recorded."""
_MODULE = "jbd2"
PROGRAMS = {
    "jbd2_end_commit": "bt_jbd_end",
    "jbd2_commit_logging": "bt_jbd_log",
    "jbd2_commit_flushing": "bt_jbd_flush",
    "jbd2_commit_locking": "bt_jbd_lock",
    "jbd2_start_commit": "bt_jbd_start",
}
"""Program by tracepoint, in the order of attaching: the end first, so that no end is missed of a
commit whose beginning was seen."""
_ARGUMENTS = 2
_MODULE_RIGHT = "CAP_SYS_ADMIN"


def journal_programs(btf: KernelBtf, preemptible: bool) -> tuple[list[tuple[str, str]], str]:
    """Return ((part, program) in the order of attaching, "") for commits, or ([], reason).

    All of the tracepoints or none: each must have a type (the kernel's or the module's) with two
    arguments. preemptible: take the programs that disable preemption, whose names end in _p. Where
    jbd2 is a module, CAP_SYS_ADMIN is needed: libbpf finds modules only with it.
    """
    for tracepoint in PROGRAMS:
        count = btf.parameters(tracepoint)
        if count is None:
            count = btf.module_parameters(tracepoint, _MODULE)
            if count is None:
                return [], (
                    "the kernel has no types for the tracepoints of jbd2: it is not loaded, or a "
                    "module, of which the kernel has types since 5.11"
                )
            if not capabilities.holds(_MODULE_RIGHT):
                return [], f"jbd2 is a module, and programs for modules need {_MODULE_RIGHT}"
        if count != _ARGUMENTS:
            return [], f"{tracepoint} has {count} arguments: there is no program for that"
    return [(PART, name + "_p" * preemptible) for name in PROGRAMS.values()], ""


def tracepoints() -> dict[str, str]:
    """Return the tracepoint of each program, by the program's name without the variant's _p."""
    return {program: tracepoint for tracepoint, program in PROGRAMS.items()}


def all_journal_programs() -> list[str]:
    """Return the names of the object's programs for commits, variants included."""
    return [name + suffix for name in PROGRAMS.values() for suffix in ("", "_p")]
