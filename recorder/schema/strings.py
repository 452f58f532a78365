# SPDX-License-Identifier: Apache-2.0
"""Escapes untrusted strings for output: names of tasks, files, devices, cgroups, hosts.

Implements docs/names.md. A process chooses its own name, a user the names of files, the author of
a log its header; none of them may control the terminal on which the name is printed.
"""

import re

_NO_CHARACTER = re.compile("[\ud800-\udfff]")
_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
GUARD = "'"
"""Put before the text of a CSV cell: spreadsheets do not evaluate a cell that begins with it."""
GUARDED_BEGINNINGS = f"=+-@\t\r\n\uff1d\uff0b\uff0d\uff20{GUARD}"
"""Characters with which a formula may begin (also full-width = + - @), and the guard itself."""


def shown(text: str) -> str:
    r"""Return the text on one line, with all that could control a terminal escaped.

    Characters that cannot be printed (Unicode categories Cc, Cf, Cs, Co, Cn, Zl, Zp, and Zs but the
    space) become `\n`, `\r`, `\t`, `\xHH`, `\uHHHH` or `\UHHHHHHHH`, a backslash two, so that
    different texts stay different. Call it once, where text is printed for people.
    """
    if "\\" not in text and text.isprintable():
        return text
    return "".join(_SHORT.get(c) or (c if c.isprintable() else _escaped(ord(c))) for c in text)


def _escaped(code: int) -> str:
    if code < 1 << 8:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def harmless(text: str) -> str:
    """Return lines that another process has `shown` already, with the rest escaped, once."""
    return "".join(c if c == "\n" or c.isprintable() else _escaped(ord(c)) for c in text)


def characters(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates: bytes of names that are no UTF-8."""
    return _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text)


def guarded(text: str) -> str:
    """Return the text as a CSV cell that no spreadsheet evaluates as a formula.

    A text that begins with one of GUARDED_BEGINNINGS gets an apostrophe in front, so removing one
    leading apostrophe from a cell restores any text.
    """
    return GUARD + text if text[:1] and text[0] in GUARDED_BEGINNINGS else text
