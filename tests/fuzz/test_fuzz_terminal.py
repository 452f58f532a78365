# SPDX-License-Identifier: Apache-2.0
"""What a log says is shown, and never obeyed: no escape sequence gets to the terminal."""

import io
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.log.frames import FrameType
from tests.fuzz.fuzz_mending import mended
from tests.fuzz.make_corpus import CORPUS
from tests.fuzz.targets import run

ESCAPE = "\x1b]0;pwned\x07\0"


def log_that_says(text: str) -> bytes:
    """A log whose header says it wherever text stands."""
    stream = io.BytesIO()
    header = {
        "log_id": text,
        "created_by": text,
        "host": {"name": text, "os": text},
        "command": ["fio", text],
        "devices": [{"dev": 7 << 20, "name": text}],
    }
    LogWriter(stream, header, level=0).close({"reason": text})
    return stream.getvalue()


def test_texts_of_a_log_reach_no_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # GIVEN a log whose texts are escape sequences
    log = log_that_says(ESCAPE)
    # WHEN it is read THEN they are what they are, for who quotes them
    reader = LogReader(io.BytesIO(log))
    assert reader.header["host"]["name"] == ESCAPE
    assert reader.end is not None
    assert reader.end["reason"] == ESCAPE
    # AND what is printed of them is escaped
    from biotrail.cli.main import main

    path = tmp_path / "log"
    path.write_bytes(log)
    with pytest.raises(SystemExit):
        main(["info", str(path)])
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\0" not in said and "\x07" not in said
    assert r"\x1b]0;pwned\x07\x00" in said


@pytest.mark.parametrize("form", ["text", "blkparse"])
def test_a_thread_s_name_is_shown_without_its_escapes(
    form: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # GIVEN a log in which a thread is called by an escape sequence
    data = (CORPUS / "log" / "zram-rows").read_bytes()
    chunk = data.index(b"\xfaBT\xce" + bytes([FrameType.CHUNK]))
    assert b"blkdiscard" in data[chunk:]
    path = tmp_path / "log"
    named = data[chunk:].replace(b"blkdiscard", b"\x1b[2Jiscard")
    path.write_bytes(mended(data[:chunk] + named))
    # WHEN it is dumped
    from biotrail.cli.main import main

    with pytest.raises(SystemExit):
        main(["dump", "--format", form, str(path)])
    # THEN the terminal does not get it
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert r"\x1b[2Jiscard" in said


def test_a_header_that_is_no_header_is_refused_with_the_place() -> None:
    # GIVEN a log with right checksums, and a number of a device that is a text
    data = log_that_says("x").replace(b'"dev":7340032', b'"dev":"73400"')
    # WHEN it is asked about
    status, said = run(["info", "@"], mended(data))
    # THEN the message says where and what
    assert status == 1
    assert "has '73400' as devices[0].dev, not a whole number from 0" in said
