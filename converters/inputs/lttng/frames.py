# SPDX-License-Identifier: Apache-2.0
"""Frames: what the child sends, and the other side receives."""

import json
import struct
import sys
from typing import Any

DISK_NAME = "lttng_statedump_block_device"
"""LTTng's event, for each disk when a trace begins, with its dev_t and name."""
FRAME = struct.Struct("<II")
"""Bytes of the JSON object, and of the records that follow it."""


def send(frame: dict[str, Any], payload: bytes = b"") -> None:
    text = json.dumps(frame, default=str).encode()
    sys.stdout.buffer.write(FRAME.pack(len(text), len(payload)) + text + payload)
    sys.stdout.buffer.flush()
