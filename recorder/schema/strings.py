# SPDX-License-Identifier: Apache-2.0
"""How strings that somebody else chose are shown: names of tasks, files, devices, cgroups, hosts.

The one rule of docs/names.md. A process chooses its name, a user the names of files, a log
whatever its header says; none of them may write to the terminal of who looks at it.
"""

import re

_NO_CHARACTER = re.compile("[\ud800-\udfff]")
_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
GUARD = "'"
"""Before a cell's text: spreadsheets take what follows as text."""
GUARDED_BEGINNINGS = f"=+-@\t\r\n\uff1d\uff0b\uff0d\uff20{GUARD}"
"""With one of these (the full-width forms of = + - @, too) a formula may begin; or a guard."""


def shown(text: str) -> str:
    r"""Return the text as a line for people: one line, without anything that a terminal obeys.

    Characters that cannot be printed (Unicode categories Cc, Cf, Cs, Co, Cn, Zl, Zp, and Zs but
    the space) become `\n`, `\r`, `\t`, `\xHH`, `\uHHHH` or `\UHHHHHHHH`, and a backslash becomes
    two: no two texts look the same. Call it once, where text leaves for a person.
    """
    if "\\" not in text and text.isprintable():
        return text
    return "".join(_SHORT.get(c) or (c if c.isprintable() else _escaped(ord(c))) for c in text)


def _escaped(code: int) -> str:
    if code < 1 << 8:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def harmless(text: str) -> str:
    """Return lines that were `shown` before (by another process) safe to print all the same.

    Line feeds and backslashes stay as they are, so that nothing is escaped twice.
    """
    return "".join(c if c == "\n" or c.isprintable() else _escaped(ord(c)) for c in text)


def characters(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates, which UTF-8 cannot hold.

    They stand for bytes of file names and arguments that are no UTF-8.
    """
    return _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text)


def guarded(text: str) -> str:
    """Return the text as a cell of CSV that no spreadsheet takes for a formula.

    What begins with one of GUARDED_BEGINNINGS gets an apostrophe before it: taking one leading
    apostrophe away gives every text back.
    """
    return GUARD + text if text[:1] and text[0] in GUARDED_BEGINNINGS else text
