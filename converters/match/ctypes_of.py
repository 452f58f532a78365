# SPDX-License-Identifier: Apache-2.0
"""The types that the compiled parts name. In C: numbers of that width, and pointers to structs."""

from typing import Any, TypeVar

T = TypeVar("T")

int64 = int
uint64 = int
uint32 = int
uint16 = int
uint8 = int
int32 = int
bint = bool
words = Any
"""A column of a window's records: uint64*."""

int64_7 = Any
"""Seven of int64; likewise the next."""
int64_32 = Any
flight_4 = Any
"""Four pointers to flights."""

NULL: Any = None
calloc: Any = None
free: Any = None
memcpy: Any = None
memset: Any = None
realloc: Any = None
"""Of C's library."""
begin_task: Any = None
"""setjmp: 0; once more, not 0, when `give_task_up` was called."""
give_task_up: Any = None
"""longjmp to where this thread last called `begin_task`."""


def struct(cls: type[T]) -> type[T]:
    """Mark a class as a C struct; its name then stands for a pointer to one."""
    return cls


def size_of(cls: type[Any]) -> int:
    """Return the bytes of a struct."""
    raise NotImplementedError(cls)
