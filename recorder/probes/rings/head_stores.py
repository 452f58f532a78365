# SPDX-License-Identifier: Apache-2.0
"""Makes the programs' stores of ring heads exchanges, which order them, on machines that reorder.

The object has plain stores, as kernels before 5.12 refuse any program that has an exchange, even
in code that they know never runs. `bpf/ring.h` (bt_publish) marks each such store by an instruction
before it that moves the store's address to itself, which no compiler writes.
"""

import os

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
_EXIT = 0x95
_R0, _R1, _R10 = 0, 1, 10


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


def _word(
    opcode: int, destination: int = 0, source: int = 0, offset: int = 0, value: int = 0
) -> int:
    registers = source << 4 | destination
    return opcode | registers << _REGISTERS_UP | (offset & 0xFFFF) << 16 | value << 32


def exchanges_offered() -> bool:
    """Return whether this kernel loads and compiles a program with an exchange.

    Since 5.12, and on arm64 since 5.18: before, its JIT leaves such a program to the interpreter.
    False also without the right to load it.
    """
    words = [
        _word(0xB7, _R0),  # r0 = 0
        _word(_STORE, _R10, _R0, -8),
        _word(0xB7, _R1, value=1),  # r1 = 1
        _word(_ATOMIC, _R10, _R1, -8, _XCHG >> 32),
        _word(_EXIT),
    ]
    code = np.array(words, "<u8").tobytes()
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
