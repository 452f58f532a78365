# SPDX-License-Identifier: Apache-2.0
"""The bcc backend: programs on the block layer's tracepoints, compiled by bcc on this host.

For kernels without BTF. Records and rings are those of the core backend. Fields that the
tracepoints do not report are empty, above all the pointers of bio and request.
"""

import errno
import os
from pathlib import Path

from biotrail.recorder.probes.backend import (
    NOT_OPEN,
    ProbeConfig,
    Probes,
    ProgramInfo,
)
from biotrail.recorder.probes.bcc import load as bcc_load
from biotrail.recorder.probes.bcc import source as bcc_source
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.kernel import bpf_calls, tracefs
from biotrail.recorder.probes.maps.admission import device_filters
from biotrail.recorder.probes.programs import ESSENTIAL, LIGHT, STEPS, wanted_letters
from biotrail.recorder.probes.rings.barriers import machine_barrier
from biotrail.recorder.probes.rings.ring import Rings, RingSizes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.formats import Format
from biotrail.recorder.schema.kernel_names import FLAGS, OPS, RWBS_FLAGS
from biotrail.recorder.schema.payloads import BackendFacts, KernelEnums

_SYSTEM = "block"
_START = "block_io_start"
_UPPER_BYTES = 4096
"""Only level 0 is used: the kernel does not nest tracepoint programs (trace_call_bpf)."""
_SMALLEST_BYTES = 64 << 10
_ENUMS: KernelEnums = {
    "op_enum": OPS,
    "flag_bits": {n: b for n, b in FLAGS.items() if n in (*RWBS_FLAGS.values(), "PREFLUSH")},
}
"""biotrail's own numbers, by which the programs make `opf` of letters."""
_PLUGS = "PU"  # letters of block_plug and block_unplug


class BccProbes(Probes):
    backend = "bcc"

    def __init__(self, config: ProbeConfig) -> None:
        super().__init__()
        self.enums = _ENUMS
        self.config = config
        self._formats: dict[str, Format] = {}
        self._loaded: dict[str, int] = {}
        """Descriptors of programs, and of the rings, by name."""
        self._events: list[int] = []

    def open(self) -> None:
        """Compile and load the programs and map the rings; mounts tracefs if it is not mounted."""
        require_rights()
        bcc_source.check_filters(self.config.filters)
        if self.config.events == LIGHT:
            raise ProbeError(
                "the bcc backend has no event set light: tracepoints do not report a request's "
                "times; take --events minimal, or --backend core"
            )
        if self.config.triggers.in_kernel:
            raise ProbeError(
                "the bcc backend has no trigger slow, failed or depth: tracepoints do not say "
                "which request completes; leave it out, or take --backend core"
            )
        if self.config.files:
            raise ProbeError(
                "the bcc backend records no files: tracepoints do not report them; "
                "leave out --files, or take --backend core"
            )
        for what, asked in (("stacks", self.config.stacks), ("path", self.config.path)):
            if asked:
                raise ProbeError(
                    f"this backend records no {what}: use --backend core, or no --{what}"
                )
        bcc_load.require()
        names = [probe.tracepoint for probe in STEPS]
        self._formats = tracefs.read(tracefs.find(), _SYSTEM, names)
        wanted = wanted_letters(self.config.events, _START in self._formats)
        filters = self.config.filters
        filtered = bool(self.config.devices or filters.ops or filters.sectors)
        for probe in STEPS:
            form, reason = self._formats.get(probe.tracepoint), ""
            if form is None:
                reason = f"this kernel has no tracepoint {probe.tracepoint}"
            elif probe.letter not in wanted:
                reason = f"not in the event set {self.config.events}"
            elif probe.letter in _PLUGS and filtered:
                what = "does not report the device, nor the I/O that it holds back"
                reason = f"{probe.tracepoint} {what}"
            elif lacking := bcc_source.lacks(probe.letter, form):
                reason = f"{probe.tracepoint} does not report {', '.join(lacking)}"
            if reason and probe.letter in ESSENTIAL:
                raise ProbeError(f"event {probe.letter} cannot be recorded: {reason}")
            name = "" if reason else bcc_source.program_name(probe.tracepoint)
            one = ProgramInfo(name, probe.letter, probe.tracepoint, False, reason)
            self._choices.append(one)
        possible = Path("/sys/devices/system/cpu/possible").read_text()
        cpus = int(possible.replace(",", "-").split("-")[-1]) + 1  # the highest one's number, + 1
        main = RingSizes.choose(cpus, self.config.ring_bytes).ring_bytes
        self.sizes = self._load_fitting(RingSizes(main, _UPPER_BYTES), cpus)

    def _load_fitting(self, sizes: RingSizes, cpus: int) -> RingSizes:
        """Load with rings of `sizes`, halved until the kernel accepts them; return their sizes."""
        recorded = [one for one in self._choices if one.name]
        forms = {one.letter: self._formats[one.tracepoint] for one in recorded}
        programs = [one.name for one in recorded]
        devices = device_filters(self.config.devices)
        while True:
            try:
                text = bcc_source.source(forms, devices, self.config.filters, sizes, cpus)
                self._loaded = bcc_load.load(text, programs, [bcc_source.RINGS])
                rings = self._loaded[bcc_source.RINGS]
                self._rings = Rings.map(rings, cpus, sizes, machine_barrier())
                return sizes
            except bcc_load.TooBigError:
                self.close()
                if sizes.ring_bytes <= _SMALLEST_BYTES:
                    raise
                sizes = RingSizes(sizes.ring_bytes // 2, _UPPER_BYTES)
            except BaseException:
                self.close()
                raise

    def attach(self) -> None:
        if not self._loaded:
            raise ProbeError(NOT_OPEN)
        # Completions first and Q last: every bio whose Q is recorded has its later events too.
        for one in reversed(self._choices):
            if not one.name:
                continue
            number = self._formats[one.tracepoint].number
            try:
                event = bpf_calls.attach_tracepoint(self._loaded[one.name], number)
            except OSError as error:
                denied = error.errno in (errno.EPERM, errno.EACCES)
                remedy = "run as root" if denied else "see biotrail doctor"
                raise ProbeError(
                    f"tracepoint {one.tracepoint} cannot be attached to: {error.strerror}; {remedy}"
                ) from error
            self._events.append(event)
            self._attached_once.add(one.name)

    def detach(self) -> None:
        while self._events:
            os.close(self._events.pop())

    def close(self) -> None:
        self.detach()
        super().close()
        while self._loaded:
            os.close(self._loaded.popitem()[1])

    def backend_facts(self) -> BackendFacts:
        recorded = [one.letter for one in self._choices if one.name]
        absent = bcc_source.absent(recorded, self._formats)
        return {"backend": self.backend, "absent": absent}

    def _info(self, program: str) -> bpf_calls.ProgInfo:
        if not self._loaded:
            raise ProbeError(NOT_OPEN)
        return bpf_calls.program_info(self._loaded[program])
