# SPDX-License-Identifier: Apache-2.0
"""Finds out, by trying, how functions can be attached to on this kernel.

Its version does not say: whether a way works depends on how the kernel was built and on what the
host permits. Each way is tried on bpf_fentry_test1, a function that the kernel has for tests of BPF
and never calls itself.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from biotrail.recorder.probes.kernel import bpf_calls
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import RefusedError
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import Descriptors
from biotrail.recorder.probes.sites.loading import RETURN_0, AttachType, Place, ProgramType, load
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.symbols.kallsyms import address_of

TRIED_ON = "bpf_fentry_test1"
SESSION_CALL = "bpf_session_is_return"
"""The kernel function that says whether a session's program runs at an entry or a return."""
WAYS = ("session", "multi", "fentry", "kprobe")
"""Ways to attach to functions, the best first. "typed" stands for tracepoints alone."""


@dataclass(frozen=True)
class Way:
    """A way to attach to functions. reason: why it does not work here; "" if it does."""

    name: str
    reason: str
    cookies: bool = False
    """kprobe: one program serves all functions, told apart by their cookies (5.15)."""

    @property
    def works(self) -> bool:
        """Return whether functions can be attached in this way."""
        return not self.reason


@cache
def all_ways() -> tuple[Way, ...]:
    """Try every way on this kernel, and return them in the order of WAYS.

    Takes some milliseconds; done once in a process. Raises ProbeError: no BTF, or no libbpf.
    """
    with KernelBtf() as btf:
        function, session = btf.function_id(TRIED_ON), btf.function_id(SESSION_CALL)
    trials: dict[str, Callable[[Descriptors], None]] = {
        "session": lambda kept: _try_session(kept, session),
        "multi": _try_multi,
        "fentry": lambda kept: _try_fentry(kept, function),
        "kprobe": _try_kprobe,
    }
    return tuple(_tried(name, trials[name]) for name in WAYS)


def _tried(name: str, trial: Callable[[Descriptors], None]) -> Way:
    """Return the way, after trying it; whatever the trial attached is detached again."""
    with Descriptors() as kept:
        try:
            trial(kept)
        except OSError as error:
            return Way(name, _said(error))
        except RefusedError as error:
            return Way(name, os.strerror(error.number))
        except ProbeError as error:
            return Way(name, str(error))
    return Way(name, "", name == "kprobe" and _has_cookies())


def _said(error: OSError) -> str:
    """Return the reason in words, for the user."""
    if error.errno == errno.EOPNOTSUPP:
        return "this kernel was built without it"
    if error.errno == errno.ENOENT and error.filename:
        return f"this kernel has no {error.filename}"
    return os.strerror(error.errno) if error.errno else str(error)


def _try_session(kept: Descriptors, call: int | None) -> None:
    """Attach to entry and return at once; raises OSError or ProbeError."""
    if call is None:
        raise ProbeError(f"this kernel has no {SESSION_CALL}()")
    place = Place(ProgramType.KPROBE, AttachType.KPROBE_SESSION)
    program = kept.add(load("trial", RETURN_0, place))
    address = address_of(TRIED_ON)
    kept.add(attaching.functions(program, [address], [0], AttachType.KPROBE_SESSION))


def _try_multi(kept: Descriptors) -> None:
    """Attach to entries and to returns of several functions; raises OSError or RefusedError."""
    place = Place(ProgramType.KPROBE, AttachType.KPROBE_MULTI)
    program = kept.add(load("trial", RETURN_0, place))
    addresses, kind = [address_of(TRIED_ON)], AttachType.KPROBE_MULTI
    kept.add(attaching.functions(program, addresses, [0], kind))
    kept.add(attaching.functions(program, addresses, [0], kind, returns=True))


def _try_fentry(kept: Descriptors, function: int | None) -> None:
    """Attach to the entry and the return by a trampoline; raises OSError or ProbeError."""
    if function is None:
        raise ProbeError(f"this kernel has no {TRIED_ON}() to try it on")
    for kind in (AttachType.FENTRY, AttachType.FEXIT):
        place = Place(ProgramType.TRACING, kind, function)
        kept.add(attaching.typed(kept.add(load("trial", RETURN_0, place))))


def _try_kprobe(kept: Descriptors) -> None:
    """Attach by a kprobe and a kretprobe; raises OSError or RefusedError."""
    program = kept.add(load("trial", RETURN_0, Place(ProgramType.KPROBE)))
    for returns in (False, True):
        event = kept.add(attaching.kprobe_event(TRIED_ON, returns=returns))
        bpf_calls.set_program(event, program)


def _has_cookies() -> bool:
    """Return whether a kprobe's program can be attached with a cookie."""
    with Descriptors() as kept:
        try:
            program = kept.add(load("trial", RETURN_0, Place(ProgramType.KPROBE)))
            event = kept.add(attaching.kprobe_event(TRIED_ON))
            kept.add(attaching.link_event(event, program, 1))
        except (OSError, RefusedError):
            return False
    return True
