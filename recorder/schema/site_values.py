# SPDX-License-Identifier: Apache-2.0
"""How values of chosen sites are shown, by the formats in a log's header (PairFacts.formats)."""

from collections.abc import Callable

_ALL = 1 << 64


def value_text(
    number: int, form: str, device: Callable[[int], str], symbol: Callable[[int], str | None]
) -> str:
    """Return a value (64 bits) as text.

    form: "signed", "hex", "dev" (a dev_t), "text" (up to 8 characters, the first in the lowest
    byte), "symbol" (a function's address); anything else: decimal. device, symbol: return the name
    of a dev_t, or of a function, None where that is not known.
    """
    match form:
        case "signed":
            return str(number - _ALL if number >= _ALL >> 1 else number)
        case "hex":
            return f"{number:#x}"
        case "dev":
            return device(number)
        case "text":
            raw = number.to_bytes(8, "little").partition(b"\0")[0]
            return raw.decode(errors="replace")
        case "symbol":
            return symbol(number) or f"{number:#x}"
    return str(number)
