# SPDX-License-Identifier: Apache-2.0
"""The little of libbpf that is needed, through ctypes and the distribution's library.

What libbpf prints is kept; a failure becomes one ProbeError that quotes the lines that matter.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from biotrail.recorder.schema.errors import ProbeError

_NAMES = ("libbpf.so.1", "libbpf.so.0")
_MAX_ERRNO = 4095
_KEPT_MESSAGES = 400
_QUOTED_MESSAGES = 12

_PrintFunction = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bpf_object__open_file": (c_void_p, (c_char_p, c_void_p)),
    "bpf_object__load": (c_int, (c_void_p,)),
    "bpf_object__close": (None, (c_void_p,)),
    "bpf_object__find_map_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_object__find_program_by_name": (c_void_p, (c_void_p, c_char_p)),
    "bpf_program__set_autoload": (c_int, (c_void_p, ctypes.c_bool)),
    "bpf_program__fd": (c_int, (c_void_p,)),
    "bpf_program__attach": (c_void_p, (c_void_p,)),
    "bpf_link__destroy": (c_int, (c_void_p,)),
    "bpf_map__fd": (c_int, (c_void_p,)),
    "bpf_map__set_value_size": (c_int, (c_void_p, c_uint32)),
    "bpf_map__set_max_entries": (c_int, (c_void_p, c_uint32)),
    "bpf_map__set_initial_value": (c_int, (c_void_p, c_void_p, c_size_t)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_map_update_elem": (c_int, (c_int, c_void_p, c_void_p, c_uint64)),
    "bpf_map_get_next_key": (c_int, (c_int, c_void_p, c_void_p)),
    "bpf_enable_stats": (c_int, (c_int,)),
    "bpf_obj_get_info_by_fd": (c_int, (c_int, c_void_p, POINTER(c_uint32))),
    "libbpf_num_possible_cpus": (c_int, ()),
    "libbpf_set_print": (c_void_p, (_PrintFunction,)),
    "libbpf_get_error": (ctypes.c_long, (c_void_p,)),
    "btf__load_vmlinux_btf": (c_void_p, ()),
    "btf__free": (None, (c_void_p,)),
    "btf__find_by_name_kind": (ctypes.c_int32, (c_void_p, c_char_p, c_uint32)),
    "btf__type_by_id": (c_void_p, (c_void_p, c_uint32)),
    "btf__name_by_offset": (c_char_p, (c_void_p, c_uint32)),
}


class RefusedError(ProbeError):
    """libbpf or the kernel refused something; `number` is the errno, 0 if unknown."""

    def __init__(self, message: str, number: int) -> None:
        """Keeps the errno beside the message."""
        super().__init__(message)
        self.number = number


class ProgInfo(ctypes.Structure):
    """`struct bpf_prog_info` (include/uapi/linux/bpf.h); the kernel fills what it knows."""

    _fields_ = (
        ("type", c_uint32),
        ("id", c_uint32),
        ("tag", c_char * 8),
        ("jited_prog_len", c_uint32),
        ("xlated_prog_len", c_uint32),
        ("jited_prog_insns", c_uint64),
        ("xlated_prog_insns", c_uint64),
        ("load_time", c_uint64),
        ("created_by_uid", c_uint32),
        ("nr_map_ids", c_uint32),
        ("map_ids", c_uint64),
        ("name", c_char * 16),
        ("ifindex", c_uint32),
        ("gpl_compatible", c_uint32),
        ("netns_dev", c_uint64),
        ("netns_ino", c_uint64),
        ("nr_jited_ksyms", c_uint32),
        ("nr_jited_func_lens", c_uint32),
        ("jited_ksyms", c_uint64),
        ("jited_func_lens", c_uint64),
        ("btf_id", c_uint32),
        ("func_info_rec_size", c_uint32),
        ("func_info", c_uint64),
        ("nr_func_info", c_uint32),
        ("nr_line_info", c_uint32),
        ("line_info", c_uint64),
        ("jited_line_info", c_uint64),
        ("nr_jited_line_info", c_uint32),
        ("line_info_rec_size", c_uint32),
        ("jited_line_info_rec_size", c_uint32),
        ("nr_prog_tags", c_uint32),
        ("prog_tags", c_uint64),
        ("run_time_ns", c_uint64),
        ("run_cnt", c_uint64),
        ("recursion_misses", c_uint64),
        ("verified_insns", c_uint32),
        ("attach_btf_obj_id", c_uint32),
        ("attach_btf_id", c_uint32),
    )


class Libbpf:
    """The library: checked calls, and what it printed since the last failure."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Declares the functions of `_SIGNATURES`; raises ProbeError where one is missing."""
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
        # Kept for as long as the library may call it.
        self._print = _PrintFunction(self._keep_message)
        library.libbpf_set_print(self._print)

    def _keep_message(self, level: int, template: bytes, arguments: int) -> int:
        buffer = ctypes.create_string_buffer(1 << 16)
        self._libc.vsnprintf(buffer, c_size_t(len(buffer)), template, c_void_p(arguments))
        if level < 2:  # LIBBPF_DEBUG
            self._messages.extend(buffer.value.decode(errors="replace").splitlines())
        return 0

    @property
    def version(self) -> str:
        """As the library says, e.g. "1.1"."""
        try:
            major = self._library.libbpf_major_version()
            return f"{major}.{self._library.libbpf_minor_version()}"
        except AttributeError:
            return "below 0.6"

    def call(self, doing: str, name: str, *arguments: Any) -> int:
        """Calls a function that returns a negative error; raises RefusedError then."""
        ctypes.set_errno(0)
        result = int(getattr(self._library, name)(*arguments))
        if result < 0:
            # -1 with errno, or the error itself.
            raise self._failure(doing, ctypes.get_errno() or -result)
        return result

    def pointer(self, doing: str, name: str, *arguments: Any) -> int:
        """Calls a function that returns an object; raises RefusedError where it is an error."""
        ctypes.set_errno(0)
        result = getattr(self._library, name)(*arguments)
        value = int(result or 0)
        if value == 0:
            raise self._failure(doing, ctypes.get_errno())
        if value >= (1 << 64) - _MAX_ERRNO:  # an ERR_PTR, as libbpf 0.x returns
            raise self._failure(doing, (1 << 64) - value)
        return value

    def void(self, name: str, *arguments: Any) -> None:
        """Calls a function whose result does not matter."""
        getattr(self._library, name)(*arguments)

    def get(self, name: str) -> Callable[..., Any]:
        """The bare function, for callers that judge its result themselves."""
        function: Callable[..., Any] = getattr(self._library, name)
        return function

    def _failure(self, doing: str, number: int) -> RefusedError:
        said = [line for line in self._messages if line.strip()][-_QUOTED_MESSAGES:]
        self._messages.clear()
        reason = os.strerror(number) if number else "not found"
        quoted = "\n  ".join(["", *said]) if said else ""
        message = f"{doing}: {reason}.{quoted}\n`biotrail doctor` says what is missing."
        return RefusedError(message, number)


@cache
def load_library() -> Libbpf:
    """The distribution's libbpf. Raises ProbeError where there is none."""
    for name in _NAMES:
        try:
            return Libbpf(ctypes.CDLL(name, use_errno=True))
        except OSError:
            continue
    raise ProbeError(
        f"libbpf was not found ({' or '.join(_NAMES)}): install it, e.g. apt-get install libbpf1"
    )


class BpfObject:
    """One BPF object file from open to close. Programs are loaded only where asked for."""

    def __init__(self, path: Path) -> None:
        """Opens `path`; raises ProbeError."""
        self._lib = load_library()
        self._links: list[int] = []
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

    def set_autoload(self, program: str, wanted: bool) -> None:
        """Whether load() loads `program`."""
        self._lib.call(
            f"program {program}", "bpf_program__set_autoload", self._program(program), wanted
        )

    def set_map_size(self, name: str, value_size: int, max_entries: int) -> None:
        """Sizes of a map, in bytes and elements, before load()."""
        bpf_map = self._map(name)
        self._lib.call(f"map {name}", "bpf_map__set_value_size", bpf_map, value_size)
        self._lib.call(f"map {name}", "bpf_map__set_max_entries", bpf_map, max_entries)

    def set_initial_value(self, name: str, value: ctypes.Structure) -> None:
        """The content of a section (".rodata"), of exactly its size, before load()."""
        self._lib.call(
            f"section {name}",
            "bpf_map__set_initial_value",
            self._map(name),
            byref(value),
            ctypes.sizeof(value),
        )

    def load(self) -> None:
        """Creates the maps and has the kernel verify the programs; raises ProbeError."""
        self._lib.call("the kernel refused the BPF programs", "bpf_object__load", self._object)

    def map_fd(self, name: str) -> int:
        """File descriptor of a loaded map; it belongs to the object."""
        return self._lib.call(f"map {name}", "bpf_map__fd", self._map(name))

    def update_section(self, name: str, value: ctypes.Structure) -> None:
        """Replaces the content of a writable section (".data") while programs run."""
        self._lib.call(
            f"section {name}",
            "bpf_map_update_elem",
            self.map_fd(name),
            byref(c_uint32(0)),
            byref(value),
            0,
        )

    def read_section(self, name: str, value: ctypes.Structure) -> None:
        """Copies the content of a writable section (".data") to `value`."""
        fd = self.map_fd(name)
        self._lib.call(
            f"section {name}", "bpf_map_lookup_elem", fd, byref(c_uint32(0)), byref(value)
        )

    def keys(self, name: str) -> Iterator[int]:
        """Keys of a map whose keys are numbers of four bytes, while programs add more."""
        fd = self.map_fd(name)
        step = self._lib.get("bpf_map_get_next_key")
        key, following = c_uint32(0), c_uint32(0)
        last = None
        while step(fd, last, byref(following)) == 0:
            key.value = following.value
            last = byref(key)
            yield key.value

    def read_value(self, name: str, key: int, value: "ctypes.Array[ctypes.c_char]") -> bool:
        """Copies the value of a four-byte key to `value`; whether there is one."""
        look_up = self._lib.get("bpf_map_lookup_elem")
        return bool(look_up(self.map_fd(name), byref(c_uint32(key)), byref(value)) == 0)

    def add_key(self, name: str, key: int) -> None:
        """Puts a key of eight bytes, with the value 1, into a hash map."""
        self._lib.call(
            f"map {name}",
            "bpf_map_update_elem",
            self.map_fd(name),
            byref(c_uint64(key)),
            byref(c_uint64(1)),
            0,
        )

    def attach(self, program: str) -> None:
        """Attaches by a file descriptor: gone with this process, however it ends."""
        self._links.append(
            self._lib.pointer(
                f"program {program} cannot be attached",
                "bpf_program__attach",
                self._program(program),
            )
        )

    def info(self, program: str) -> ProgInfo:
        """What the kernel knows of a loaded program."""
        info = ProgInfo()
        size = c_uint32(ctypes.sizeof(info))
        fd = self._lib.call(f"program {program}", "bpf_program__fd", self._program(program))
        self._lib.call(f"program {program}", "bpf_obj_get_info_by_fd", fd, byref(info), byref(size))
        return info

    def detach(self) -> None:
        """Detaches everything, the last attached first; the maps stay readable until close()."""
        for link in reversed(self._links):
            self._lib.void("bpf_link__destroy", link)
        self._links.clear()

    def close(self) -> None:
        """Detaches and unloads everything; may be called again."""
        self.detach()
        if self._object is not None:
            self._lib.void("bpf_object__close", self._object)
            self._object = None
