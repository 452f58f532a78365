# SPDX-License-Identifier: Apache-2.0
"""Bindings by ctypes to the functions that are needed of the distribution's libbpf.

What libbpf prints is kept, and quoted in the ProbeError of the next failure.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from biotrail.recorder.probes.kernel.bpf_calls import ProgInfo
from biotrail.recorder.schema.errors import ProbeError

_NAMES = ("libbpf.so.1", "libbpf.so.0")
_DEBUG = 2
"""LIBBPF_DEBUG."""
_MAX_ERRNO = 4095
"""The largest errno in an ERR_PTR (include/linux/err.h)."""
_BPF_F_TEST_STATE_FREQ = 8
_KEPT_MESSAGES = 400
"""Lines of libbpf's output that are kept, the newest; of these _QUOTED_MESSAGES are quoted."""
_QUOTED_MESSAGES = 12

_PrintFunction = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)

# (result type, argument types) by function.
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
    "bpf_object__load": (c_int, (c_void_p,)),
    "bpf_object__close": (None, (c_void_p,)),
    "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_object__find_program_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_program__set_autoload": (c_int, (c_void_p, ctypes.c_bool)),
    "bpf_program__set_flags": (c_int, (c_void_p, ctypes.c_uint32)),
    "bpf_program__fd": (c_int, (c_void_p,)),
    "bpf_program__attach": (c_void_p, (c_void_p,)),
    "bpf_program__insns": (c_void_p, (c_void_p,)),
    "bpf_program__insn_cnt": (c_size_t, (c_void_p,)),
    "bpf_program__set_insns": (c_int, (c_void_p, c_char_p, c_size_t)),
    "bpf_program__name": (c_char_p, (c_void_p,)),
    "bpf_object__next_program": (c_void_p, (c_void_p, c_void_p)),
    "bpf_link__destroy": (c_int, (c_void_p,)),
    "bpf_map__fd": (c_int, (c_void_p,)),
    "bpf_map__key_size": (c_uint32, (c_void_p,)),
    "bpf_map__max_entries": (c_uint32, (c_void_p,)),
    "bpf_map__type": (c_uint32, (c_void_p,)),
    "bpf_map__value_size": (c_uint32, (c_void_p,)),
    "bpf_object__next_map": (c_void_p, (c_void_p, c_void_p)),
    "bpf_map__set_value_size": (c_int, (c_void_p, c_uint32)),
    "bpf_map__set_max_entries": (c_int, (c_void_p, c_uint32)),
    "bpf_map__set_initial_value": (c_int, (c_void_p, c_void_p, c_size_t)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_delete_elem": (c_int, (c_int, c_void_p)),
    "bpf_map_lookup_batch": (c_int, (c_int, *(c_void_p,) * 4, POINTER(c_uint32), c_void_p)),
    "bpf_map_get_next_key": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_enable_stats": (c_int, (c_int,)),
    "bpf_obj_get_info_by_fd": (c_int, (c_int, c_void_p, POINTER(c_uint32))),
    "libbpf_num_possible_cpus": (c_int, ()),
    "libbpf_set_print": (c_void_p, (_PrintFunction,)),
    "btf__load_vmlinux_btf": (c_void_p, ()),
    "btf__load_module_btf": (c_void_p, (c_char_p, c_void_p)),
    "btf__free": (None, (c_void_p,)),
    "btf__find_by_name_kind": (ctypes.c_int32, (c_void_p, c_char_p, c_uint32)),
    "btf__type_by_id": (c_void_p, (c_void_p, c_uint32)),
    "btf__name_by_offset": (c_char_p, (c_void_p, c_uint32)),
}


class RefusedError(ProbeError):
    """A failed call of libbpf; `number` is the errno, 0 if unknown."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class Libbpf:
    """Checked calls of libbpf, and the warnings that libbpf printed since the last failure."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._libc = ctypes.CDLL(None)
        self._messages: deque[str] = deque(maxlen=_KEPT_MESSAGES)
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise ProbeError(
                    f"libbpf {self.version} lacks {name}: install libbpf 0.8 or newer"
                ) from error
            function.restype, function.argtypes = result, arguments
        # An attribute, so that the callback is not freed while libbpf may call it.
        self._print = _PrintFunction(self._keep_message)
        library.libbpf_set_print(self._print)

    def _keep_message(self, level: int, template: bytes, arguments: int) -> int:
        """libbpf_print_fn_t."""
        if level < _DEBUG:  # of debugging there are thousands, which cost a tenth of a second
            buffer = ctypes.create_string_buffer(1 << 16)
            self._libc.vsnprintf(buffer, c_size_t(len(buffer)), template, c_void_p(arguments))
            self._messages.extend(buffer.value.decode(errors="replace").splitlines())
        return 0

    @property
    def version(self) -> str:
        """The library's version, e.g. "1.1"; "below 0.6" where it does not say."""
        try:
            major = self._library.libbpf_major_version()
            return f"{major}.{self._library.libbpf_minor_version()}"
        except AttributeError:
            return "below 0.6"

    def call(self, doing: str, name: str, *arguments: Any) -> int:
        """Call function `name` and return its result, 0 or more.

        Raises RefusedError where the result is negative, with errno or, where the call did not set
        it, the negated result. `doing`: how the error's message begins.
        """
        ctypes.set_errno(0)
        result = int(getattr(self._library, name)(*arguments))
        if result < 0:
            # Some functions return -1 and set errno, others return -errno.
            raise self._failure(doing, ctypes.get_errno() or -result)
        return result

    def pointer(self, doing: str, name: str, *arguments: Any) -> int:
        """Call function `name`; raises RefusedError for NULL and for an ERR_PTR."""
        ctypes.set_errno(0)
        result = getattr(self._library, name)(*arguments)
        value = int(result or 0)
        if value == 0:
            raise self._failure(doing, ctypes.get_errno())
        if value >= (1 << 64) - _MAX_ERRNO:  # an ERR_PTR, as libbpf 0.x returns
            raise self._failure(doing, (1 << 64) - value)
        return value

    def possible_cpus(self) -> int:
        return self.call("the number of CPUs is unknown", "libbpf_num_possible_cpus")

    def get(self, name: str) -> Callable[..., Any]:
        """Return function `name` unchecked, for callers that interpret its result themselves."""
        function: Callable[..., Any] = getattr(self._library, name)
        return function

    def _failure(self, doing: str, number: int) -> RefusedError:
        """Return an error that quotes libbpf's last messages, and forget all messages so far."""
        said = [line for line in self._messages if line.strip()][-_QUOTED_MESSAGES:]
        self._messages.clear()
        reason = os.strerror(number) if number else "not found"
        quoted = "\n  ".join(["", *said]) if said else ""
        message = f"{doing}: {reason}.{quoted}\n`biotrail doctor` says what is missing."
        return RefusedError(message, number)


@cache
def load_library() -> Libbpf:
    """Return the distribution's libbpf. A failure is not kept: the next call tries again."""
    for name in _NAMES:
        try:
            return Libbpf(ctypes.CDLL(name, use_errno=True))
        except OSError:
            continue
    raise ProbeError(
        f"libbpf was not found ({' or '.join(_NAMES)}): install it, e.g. apt-get install libbpf1"
    )


_ELEMENT = 48
"""Bytes of an element of a hash beside its key and value: struct htab_elem."""
_BUCKET = 16
_STACK = 16
"""Bytes of a stack beside its frames: struct stack_map_bucket."""
_PAGE = 4096


class MapType(IntEnum):
    """enum bpf_map_type (include/uapi/linux/bpf.h), those that biotrail's objects have."""

    HASH = 1
    ARRAY = 2
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    STACK_TRACE = 7
    LRU_HASH = 9
    QUEUE = 22
    RINGBUF = 27


def map_bytes(kind: int, key: int, value: int, entries: int, cpus: int) -> int:
    """Return about how many bytes a map takes (kernel/bpf/), all when it is made.

    kind: of MapType; another one counts as an array. key, value: their bytes. entries: most
    elements, of a RINGBUF bytes. cpus: possible CPUs.
    """
    key, value = (-(-size // 8) * 8 for size in (key, value))  # as the kernel lays them out
    buckets = 1 << max(0, entries - 1).bit_length()
    match kind:
        case MapType.HASH | MapType.LRU_HASH:
            # Each CPU may keep a few free elements; they are few beside the others.
            size = (entries + cpus) * (_ELEMENT + key + value) + buckets * _BUCKET
        case MapType.PERCPU_HASH:
            each = _ELEMENT + key + 8 + value * cpus
            size = entries * each + buckets * _BUCKET
        case MapType.PERCPU_ARRAY:
            size = entries * (8 + value * cpus)
        case MapType.STACK_TRACE:
            size = entries * (_STACK + value) + buckets * 8
        case MapType.RINGBUF:
            size = entries + 3 * _PAGE
        case _:
            size = entries * value
    return -(-size // _PAGE) * _PAGE


SECTION = c_uint32(0)
"""The key of a section of global variables (".rodata", ".data"): a map of one element."""


class BpfObject:
    """One BPF object file: opened when made, then sized, load(), attach(), close().

    Every method raises RefusedError where the object has no such program or map, or the kernel
    refuses.
    """

    def __init__(self, path: Path) -> None:
        self._lib = load_library()
        self._links: dict[str, int] = {}
        self._program_fds: dict[str, int] = {}
        self._object: int | None = self._lib.pointer(
            f"{path} cannot be read as a BPF object",
            "bpf_object__open_file",
            os.fsencode(path),
            None,
        )

    def _program(self, name: str) -> int:
        return self._lib.pointer(
            f"the BPF object has no program {name}",
            "bpf_object__find_program_by_name",
            self._object,
            name.encode(),
        )

    def _map(self, name: str) -> int:
        return self._lib.pointer(
            f"the BPF object has no map {name}",
            "bpf_object__find_map_by_name",
            self._object,
            name.encode(),
        )

    def _programs(self) -> Iterator[tuple[str, int]]:
        get, program = self._lib.get, None
        while program := get("bpf_object__next_program")(self._object, program):
            yield get("bpf_program__name")(program).decode(), program

    def choose(self, wanted: Collection[str], by_states: str = "") -> None:
        """Have load() load these programs alone.

        by_states: of programs whose name begins so the verifier compares states at each jump.
        """
        programs = dict(self._programs())
        for name, program in programs.items():
            doing = f"program {name}"
            self._lib.call(doing, "bpf_program__set_autoload", program, name in wanted)
            if by_states and name.startswith(by_states):
                self._lib.call(doing, "bpf_program__set_flags", program, _BPF_F_TEST_STATE_FREQ)
        for name in set(wanted) - programs.keys():
            self._program(name)  # raises: there is none

    def set_map_size(self, name: str, value_size: int | None, max_entries: int) -> None:
        """value_size: of an element; None: as it was compiled."""
        bpf_map = self._map(name)
        if value_size is not None:
            self._lib.call(f"map {name}", "bpf_map__set_value_size", bpf_map, value_size)
        self._lib.call(f"map {name}", "bpf_map__set_max_entries", bpf_map, max_entries)

    def map_bytes(self, cpus: int) -> int:
        """Return about how many bytes all maps take once loaded."""
        get, found, total = self._lib.get, None, 0
        while found := get("bpf_object__next_map")(self._object, found):
            kind, key, value, entries = (
                int(get(f"bpf_map__{size}")(found))
                for size in ("type", "key_size", "value_size", "max_entries")
            )
            total += map_bytes(kind, key, value, entries, cpus)
        return total

    def set_initial_value(self, name: str, value: "ctypes._CData") -> None:
        """Set the content of a section (".rodata") before load(); `value` has exactly its size."""
        where, size = self._map(name), ctypes.sizeof(value)
        self._lib.call(f"section {name}", "bpf_map__set_initial_value", where, byref(value), size)

    def load(self) -> None:
        self._lib.call("the kernel refused the BPF programs", "bpf_object__load", self._object)

    def map_fd(self, name: str) -> int:
        """Return the file descriptor of a loaded map; close() closes it, not the caller."""
        return self._lib.call(f"map {name}", "bpf_map__fd", self._map(name))

    def get(self, name: str, key: "ctypes._CData", value: "ctypes._CData") -> bool:
        """Copy a key's value, of all CPUs where each has its own; return whether it is there.

        Nothing checks the sizes of key and value, here and below.
        """
        look_up = self._lib.get("bpf_map_lookup_elem")
        return bool(look_up(self.map_fd(name), byref(key), byref(value)) == 0)

    def section(self, name: str, value: "ctypes._CData") -> None:
        """Copy a section of global variables. Raises RefusedError."""
        at = byref(SECTION), byref(value)
        self._lib.call(f"map {name}", "bpf_map_lookup_elem", self.map_fd(name), *at)

    def keys(self, name: str, kind: type[Any] = c_uint32) -> Iterator[Any]:
        """Yield copies of a map's keys, each a `kind`, while programs change it.

        Up to an error: keys that are added meanwhile may be missed, and some may come twice.
        """
        step, fd = self._lib.get("bpf_map_get_next_key"), self.map_fd(name)
        following, last = kind(), None
        while step(fd, last, byref(following)) == 0:
            key = kind.from_buffer_copy(following)
            last = byref(key)
            yield kind.from_buffer_copy(following)

    def put(self, name: str, key: "ctypes._CData | None", value: "ctypes._CData") -> None:
        """Set a key of a loaded map to a value. key: None: append the value to a queue."""
        at = None if key is None else byref(key)
        self._lib.call(f"map {name}", "bpf_map_update_elem", self.map_fd(name), at, byref(value), 0)

    def remove(self, name: str, key: "ctypes._CData") -> None:
        self._lib.get("bpf_map_delete_elem")(self.map_fd(name), byref(key))

    def instructions(self, program: str) -> bytes:
        """Return a program's instructions, 8 bytes each; once loaded with maps' descriptors."""
        where = self._program(program)
        doing = f"the instructions of program {program}"
        count = self._lib.call(doing, "bpf_program__insn_cnt", where)
        return ctypes.string_at(self._lib.pointer(doing, "bpf_program__insns", where), 8 * count)

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        """Replace the instructions of every program by `change` of them, as many, before load()."""
        for name, program in self._programs():
            code = change(self.instructions(name))
            doing = f"the instructions of program {name}"
            self._lib.call(doing, "bpf_program__set_insns", program, code, len(code) // 8)

    def attach(self, program: str) -> None:
        """Attach a loaded program, until detach(), close() or the end of this process."""
        self._links[program] = self._lib.pointer(
            f"program {program} cannot be attached",
            "bpf_program__attach",
            self._program(program),
        )

    def info(self, program: str) -> ProgInfo:
        info = ProgInfo()
        size = c_uint32(ctypes.sizeof(info))
        fd = self._program_fds.get(program)
        if fd is None:  # libbpf looks through all programs of the object
            fd = self._lib.call(f"program {program}", "bpf_program__fd", self._program(program))
            self._program_fds[program] = fd
        self._lib.call(f"program {program}", "bpf_obj_get_info_by_fd", fd, byref(info), byref(size))
        return info

    def detach(self, program: str | None = None) -> None:
        """Detach a program; None: all, the last attached first. Maps stay readable."""
        for name in [program] if program else list(reversed(self._links)):
            if link := self._links.pop(name, None):
                self._lib.get("bpf_link__destroy")(link)

    def close(self) -> None:
        self.detach()
        if self._object is not None:
            self._lib.get("bpf_object__close")(self._object)
            self._object = None
