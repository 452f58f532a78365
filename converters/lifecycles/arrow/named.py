# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays of names, and of values that may not be known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from biotrail.converters.events.tables import NEVER

Naming = Callable[[int], str | None]


def named(values: NDArray[Any], name: Naming) -> pa.Array:
    """Return the numbers' names as a dictionary array of strings; a name of None becomes null.

    name: called once for each distinct number.
    """
    found, codes = np.unique(values, return_inverse=True)
    return dictionary(codes, [name(int(value)) for value in found])


def dictionary(codes: NDArray[Any], names: Sequence[str | None]) -> pa.Array:
    """Return names[codes] as a dictionary array of strings.

    codes: int, indices into `names`. Equal names become one entry, in alphabetical order; None
    becomes null.
    """
    distinct = sorted({name for name in names if name is not None})
    places = {name: place for place, name in enumerate(distinct)}
    to = np.array([-1 if n is None else places[n] for n in names] or [0], np.int32)[codes]
    indices = pa.array(to, mask=to < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()))


def nullable(values: NDArray[Any], none: int = NEVER) -> pa.Array:
    """Return the values as an Arrow array with null in place of `none`."""
    return pa.array(values, mask=values == none)
