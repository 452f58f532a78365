# SPDX-License-Identifier: Apache-2.0
"""Makes the programs' stores of ring heads exchanges, which order them, on machines that reorder.

The object has plain stores, as kernels before 5.12 refuse any program that has an exchange, even
in code that they know never runs. `bpf/ring.h` (bt_publish) marks each such store by an instruction
before it that moves the store's address to itself, which no compiler writes.
"""

import os
import struct

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.kernel.bpf_calls import program_info
from biotrail.recorder.probes.kernel.libbpf import RefusedError
from biotrail.recorder.probes.rings.barriers import is_strongly_ordered
from biotrail.recorder.probes.sites.attaching import Place, ProgramType, load

# BPF instructions as little-endian words: opcode, registers (source << 4 | destination), 16-bit
# offset, 32-bit immediate (Documentation/bpf/standardization/instruction-set.rst).
_MOVE = 0xBF  # destination = source
_STORE = 0x7B  # *(u64 *)(destination + offset) = source
_ATOMIC = 0xDB  # BPF_STX | BPF_ATOMIC | BPF_DW
_XCHG = 0xE1 << 32
_OPCODE = np.uint64(0xFF)
_DESTINATION = np.uint64(0xF00)
_REGISTERS_UP = 8


def with_exchanges(instructions: bytes) -> bytes:
    """Return a program's instructions, 8 bytes each, with its marked stores made exchanges.

    The source register holds the old value afterwards, of which bt_publish lets the compiler know.
    """
    words: NDArray[np.uint64] = np.frombuffer(instructions, "<u8").copy()
    before, behind = words[:-1], words[1:]
    register = before >> np.uint64(_REGISTERS_UP) & np.uint64(0xF)
    to_itself = np.uint64(_MOVE) | register * np.uint64(0x11 << _REGISTERS_UP)
    is_plain_store = (behind & _OPCODE == _STORE) & (behind >> np.uint64(16) == 0)
    same = (before ^ behind) & _DESTINATION == 0
    stores = 1 + np.flatnonzero((before == to_itself) & is_plain_store & same)
    words[stores] = words[stores] & ~_OPCODE | np.uint64(_ATOMIC | _XCHG)
    return words.tobytes()


def exchanges_offered() -> bool:
    """Return whether this kernel loads and compiles a program with an exchange.

    Since 5.12, and on arm64 since 5.18: before, its JIT leaves such a program to the interpreter.
    False also without the right to load it.
    """
    words = (
        (0xB7, 0x00, 0, 0),  # r0 = 0
        (_STORE, 0x0A, -8, 0),  # *(u64 *)(r10 - 8) = r0
        (0xB7, 0x01, 0, 1),  # r1 = 1
        (_ATOMIC, 0x1A, -8, _XCHG >> 32),  # r1 = xchg_64(r10 - 8, r1)
        (0x95, 0x00, 0, 0),  # exit
    )
    code = b"".join(struct.pack("<BBhi", *word) for word in words)
    try:
        program = load("bt_exchange", code, Place(ProgramType.TRACEPOINT))
    except RefusedError:
        return False
    try:
        return int(program_info(program).jited_prog_len) > 0
    finally:
        os.close(program)


def ordered_heads() -> bool:
    return not is_strongly_ordered() and exchanges_offered()
