"""A headless Chromium driven over its DevTools pipe: enough to load a page and question it."""

from __future__ import annotations

import base64
import json
import os
import select
import shlex
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 120.0  # seconds without a word, on a machine that others keep busy
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


def executable() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """``with Chromium(profile_folder) as browser: browser.open(page, width=390, dark=True)``."""

    def __init__(self, profile: Path) -> None:
        self.profile = profile
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._rest = b""
        self._session: str | None = None

    def __enter__(self) -> Self:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        command = [executable() or "chromium", *FLAGS, f"--user-data-dir={self.profile}"]
        # The browser takes commands on descriptor 3 and answers on 4 (sh knows no 12<&…).
        script = f"exec {shlex.join(command)} 3<&{to_read} 4>&{to_write} 2>/dev/null"
        self._process = subprocess.Popen(
            ["bash", "-c", script], pass_fds=(to_read, to_write), start_new_session=True
        )
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], PATIENCE)
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("chromium ended or hangs")
            self._rest += chunk
        message, self._rest = self._rest.split(b"\0", 1)
        content: dict[str, Any] = json.loads(message)
        return content

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def open(self, page: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load ``page`` in a window of ``width`` CSS pixels; ``events`` then are of this page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, uncaught exceptions, and failed requests."""
        self.evaluate("0")  # whatever was reported before this has arrived by now
        found = []
        for event in self.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"]["text"])
                case "Runtime.exceptionThrown":
                    found.append(params["exceptionDetails"]["text"])
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                    found.append(str(params["args"]))
                case "Network.loadingFailed":
                    found.append(f"failed: {params['errorText']}")
        return found

    def requests(self) -> list[str]:
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path) -> None:
        """The whole page, not only the window."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
