# SPDX-License-Identifier: Apache-2.0
"""Import modules that Cython compiles where neither the compiled module nor Cython is there.

Their source is Python whose types are annotations from the module `cython`. This puts a stand-in
in its place, in which the annotations mean nothing.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType


class _Mark:
    """A type or decorator of `cython` without effect."""

    def __getitem__(self, _: object) -> "_Mark":
        """Return the type of an array of this type."""
        return self

    def __call__(self, *given: object, **options: object) -> object:
        """Return the last argument: a declared value or decorated function; else a decorator."""
        if given:
            return given[-1]
        unchanged: Callable[[object], object] = lambda function: function  # noqa: E731
        return unchanged


class StandIn(ModuleType):
    """The module `cython` for source that is not compiled."""

    compiled = False

    def __getattr__(self, name: str) -> _Mark:
        """Return a mark for each type and decorator."""
        return _Mark()


def loops_of(module: str) -> ModuleType:
    """Import a module of loops: compiled if it is; else by Cython's own stand-in, or this one.

    module: its full name. Uncompiled, a loop takes about a hundred times as long.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "cython":
            raise
    sys.modules["cython"] = StandIn("cython")
    try:
        return importlib.import_module(module)
    finally:
        del sys.modules["cython"]
