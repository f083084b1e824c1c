"""Drives a headless Chromium over its debugging pipe: real key presses, a real Content-Security-Policy."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

LIMIT = 60  # seconds for an answer
QUIET = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe
"""
# Chromium reads commands from descriptor 3 and writes answers to 4; a launcher moves the ends of our pipes there.
LAUNCHER = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(x), fcntl.F_DUPFD, 10) for x in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
KEYS = {
    "Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
    "ArrowDown": 40,
}  # fmt: skip


class Chromium:
    """One browser; `open` gives pages of it. Where none is installed the test is skipped."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            pytest.skip("NOT CHECKED in a browser: chromium is not installed")
        theirs, self._out = os.pipe()
        self._in, ours = os.pipe()
        command = [program, *QUIET.split(), f"--user-data-dir={profile}", "about:blank"]
        launcher = [sys.executable, "-c", LAUNCHER, str(theirs), str(ours)]
        self._process = subprocess.Popen([*launcher, *command], pass_fds=(theirs, ours), stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(ours)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._out)
        os.close(self._in)

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of one command; events that arrive before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        until = time.monotonic() + LIMIT
        while True:
            answer = self._read(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def listen(self) -> None:
        """Waits for the next event."""
        self.events.append(self._read(time.monotonic() + LIMIT))

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"chromium gave no answer within {LIMIT} s")
            piece = os.read(self._in, 1 << 20)
            assert piece, "chromium has gone"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def open(self, url: str) -> Page:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        page.send("Page.enable")
        page.send("Runtime.enable")
        page.send("Log.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=1280, height=1600, deviceScaleFactor=1, mobile=False)
        page.go(url)
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self.browser, self.session, self._target = browser, session, target

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self._target)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **params)

    def go(self, url: str) -> None:
        before = self._loads()
        self.send("Page.navigate", url=url)
        while self._loads() == before:
            self.browser.listen()

    def _loads(self) -> int:
        return sum(e["method"] == "Page.loadEventFired" for e in self.mine())

    def mine(self) -> list[dict[str, Any]]:
        """The events of this page so far."""
        return [e for e in self.browser.events if e.get("sessionId") == self.session]

    def eval(self, expression: str, *, wait: bool = False) -> Any:
        """The value of an expression in the page, from outside its policy; of a promise with `wait`."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, *keys: str) -> None:
        """Real key presses, one after the other."""
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
            code = "Space" if key == " " else key
            common = {"key": key, "code": code, "windowsVirtualKeyCode": KEYS.get(key, 0)}
            self.send("Input.dispatchKeyEvent", type="keyDown", **common, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def complaints(self) -> list[str]:
        """What the page's console says: uncaught errors and violations of its policy."""
        found = []
        for event in self.mine():
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"].get("text", "exception"))
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
        return found

    def html(self) -> str:
        """The page as it stands."""
        return self.eval("document.documentElement.outerHTML")
