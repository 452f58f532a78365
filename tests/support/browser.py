# SPDX-License-Identifier: Apache-2.0
"""A page in a headless Chromium that is driven: by the DevTools protocol, over a pair of pipes."""

import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.chromium import chromium, environment_in

PATIENCE = 120
_PIPES = (
    "import fcntl, os, sys\n"
    "pipes = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]\n"
    "os.dup2(pipes[0], 3); os.dup2(pipes[1], 4)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)
"""Runs a command whose descriptors 3 and 4 are the pipes: Chromium expects them there."""


class Page:
    """One page. Answers of the browser are waited for PATIENCE seconds."""

    def __init__(self, tell: int, told: int) -> None:
        self._tell, self._told = tell, told
        self._data, self._number, self._session = b"", 0, ""
        self.said: list[str] = []
        """What the page said in its console as an error, and its uncaught exceptions."""
        self.asked: dict[str, str] = {}
        """URLs that the page asked for, but those that its own policy kept it from; by request."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of one command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._tell, data) :]
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._data:
            assert select.select([self._told], [], [], PATIENCE)[0], "the browser is silent"
            data = os.read(self._told, 1 << 20)
            assert data, "the browser is gone"
            self._data += data
        message, _, self._data = self._data.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled" if parameters["type"] == "error":
                self.said.append(str([one.get("value") for one in parameters["args"]]))
            case "Runtime.exceptionThrown":
                self.said.append(json.dumps(parameters["exceptionDetails"])[:1000])
            case "Network.requestWillBeSent":
                self.asked[parameters["requestId"]] = parameters["request"]["url"]
            case "Network.loadingFailed" if parameters.get("blockedReason") == "csp":
                self.asked.pop(parameters["requestId"], None)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + PATIENCE
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < end, f"never: {expression}; {self.said}"
            time.sleep(0.1)
        return found

    def visit(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def choose_file(self, selector: str, path: Path) -> None:
        """Give a file to an input of the page, as a drop does."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def screenshot(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browser(
    width: int = 1280, height: int = 800, names: Mapping[str, int] = MappingProxyType({})
) -> Iterator[Page]:
    """A page of that many pixels, which reaches this machine's loopback address and nothing else.

    names: other hosts that are ports of it, by any certificate. Skips the test where there is no
    Chromium.
    """
    rules = [*(f"MAP {name} 127.0.0.1:{port}" for name, port in names.items()), "MAP * ~NOTFOUND"]
    # A socket's path must be short: not below a test's own directory.
    own = tempfile.TemporaryDirectory(prefix="bt-", ignore_cleanup_errors=True)
    ours, theirs = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _PIPES, str(ours[0]), str(theirs[1]), *chromium(own.name),
         "--hide-scrollbars", f"--host-resolver-rules={', '.join(rules)}, EXCLUDE 127.0.0.1",
         f"--window-size={width},{height}", "--remote-debugging-pipe",
         *(["--ignore-certificate-errors", "--disable-quic"] if names else [])],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=environment_in(own.name), pass_fds=(ours[0], theirs[1]),
    )  # fmt: skip
    os.close(ours[0])
    os.close(theirs[1])
    try:
        page = Page(ours[1], theirs[0])
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        yield page
    finally:
        os.killpg(process.pid, 9)
        process.wait(PATIENCE)
        os.close(ours[1])
        os.close(theirs[0])
        own.cleanup()
