# SPDX-License-Identifier: Apache-2.0
"""Whether bytes are text, however much of something else stands in it before the first event."""

import re

from biotrail.recorder.log.frames import MAGIC

UTF8_MARK = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LOST_PAGE = re.compile(rb"\0{512,}|\0{16,}\Z")
"""Zeros as a page leaves them that was not written, cut off where the looked at bytes end."""
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))
_MOST_ODD = 0.02
"""Share of control characters and of bytes that are no UTF-8, which names of threads may have."""


def is_text(first: bytes) -> bool:
    """Return whether a file that begins with these bytes is text in ASCII, UTF-8 or the like.

    Pages of zeros in it do not matter: text whose pages were lost still is text.
    """
    if first.startswith((*_UTF16, MAGIC)):
        return False
    text = _LOST_PAGE.sub(b"", first.removeprefix(UTF8_MARK))
    odd = len(text) - len(text.translate(None, _CONTROL))
    odd += text.decode("utf-8", "replace").count("\ufffd")
    return bool(text) and odd <= _MOST_ODD * len(text)
