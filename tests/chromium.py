"""A real Chromium, driven through a pipe in its own protocol: nothing but the browser has to be installed."""

from __future__ import annotations

import base64
import fcntl
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CONTRAST", "Browser", "Page", "StaticServer", "browser", "static_server"]

# After this long a browser hangs: on a busy machine each step may take many seconds.
_PATIENCE = 300.0
# Debian's wrapper adds arguments of its own; the program behind it does not.
_BINARIES = (os.environ.get("CHROMIUM", ""), "/usr/lib/chromium/chromium", "chromium")
_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


#: A script that gives the least contrast of any text in a page with what is behind it; the WCAG asks for 4.5.
CONTRAST = """(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => {
      const c = part / 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const found = getComputedStyle(node).backgroundColor;
    return found.startsWith("rgba(0, 0, 0, 0") ? behind(node.parentElement) : found;
  };
  const says = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
  const ratios = [...document.querySelectorAll('body *')]
    .filter((node) => says(node) && node.offsetParent !== null && !node.closest("svg"))
    .map((node) => {
      const pair = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
      return (pair[0] + 0.05) / (pair[1] + 0.05);
    });
  return Math.min(...ratios);
})()"""


class Failed(AssertionError):
    """The browser refused, or a script in a page threw."""


class Browser:
    """A running browser; `messages` are all events it has told."""

    def __init__(self, profile: Path) -> None:
        binary = next((path for name in _BINARIES if name and (path := shutil.which(name))), None)
        assert binary, "`make test` installs chromium; see tools/system.sh"
        low_read, self._write = os.pipe()
        self._read, low_write = os.pipe()
        # Away from 3 and 4, which the shell below is about to fill.
        to_read, to_write = (fcntl.fcntl(end, fcntl.F_DUPFD, 50) for end in (low_read, low_write))
        command = [binary, *_QUIET, f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", *command],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (low_read, low_write, to_read, to_write):
            os.close(end)
        self._answers: dict[int, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._next = 0
        self._ended = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        left = b""
        while chunk := os.read(self._read, 1 << 16):
            *whole, left = (left + chunk).split(b"\0")
            with self._news:
                for text in whole:
                    message = json.loads(text)
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        self.messages.append(message)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for its answer."""
        with self._news:
            self._next += 1
            number = self._next
        asked = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        with self._news:
            done = self._news.wait_for(lambda: number in self._answers or self._ended, _PATIENCE)
            assert done, f"Chromium did not answer {method}"
            assert number in self._answers, "Chromium has ended"
            answer = self._answers.pop(number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error'].get('message')}")
        return dict(answer["result"])

    def page(self, width: int = 1200, height: int = 900, *, dark: bool = False, alone: bool = False) -> Page:
        """Open a tab; one that is alone shares no memory with others, as that of another device."""
        return Page(self, width, height, dark=dark, alone=alone)

    def close(self) -> None:
        """End the browser."""
        try:
            self.call("Browser.close")
            self._process.wait(20)
        except (AssertionError, subprocess.TimeoutExpired, OSError):
            self._process.kill()
            self._process.wait(20)
        os.close(self._write)


class Page:
    """One tab. Errors of its scripts and broken policies are in `problems`."""

    def __init__(self, browser: Browser, width: int, height: int, *, dark: bool, alone: bool = False) -> None:
        self._browser = browser
        own = browser.call("Target.createBrowserContext") if alone else {}
        self.target = browser.call("Target.createTarget", url="about:blank", **own)["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{part}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something about this tab."""
        return self._browser.call(method, self._session, **parameters)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Give the events of one kind."""
        return [
            message["params"]
            for message in list(self._browser.messages)
            if message["method"] == method and message.get("sessionId") == self._session
        ]

    @property
    def problems(self) -> list[str]:
        """What scripts threw, and what the browser complains of."""
        thrown = [str(event["exceptionDetails"]) for event in self.told("Runtime.exceptionThrown")]
        logged = [event["entry"]["text"] for event in self.told("Log.entryAdded")]
        return thrown + logged

    @property
    def requests(self) -> list[str]:
        """All addresses that the tab has asked for."""
        return [event["request"]["url"] for event in self.told("Network.requestWillBeSent")]

    def open(self, address: str) -> None:
        """Go to an address and wait until its scripts have been loaded."""
        loads = len(self.told("Page.loadEventFired"))
        found = self.call("Page.navigate", url=address)
        assert "errorText" not in found, found
        if "loaderId" in found:  # else only the part behind the # has changed
            self.until(lambda: len(self.told("Page.loadEventFired")) > loads, "the page to load")

    def run(self, script: str) -> Any:
        """Run a script in the page and give its value; promises are awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in found:
            raise Failed(str(found["exceptionDetails"].get("exception", {}).get("description", found)))
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = _PATIENCE) -> Any:
        """Wait until a script gives something true."""
        return self.until(lambda: self.run(f"(async () => Boolean(await ({script})))()"), script, seconds)

    def until(self, holds: Callable[[], Any], what: str, seconds: float = _PATIENCE) -> Any:
        """Wait until something holds."""
        for _ in range(round(seconds / 0.02)):  # so many looks, however long a busy machine takes for them
            if found := holds():
                return found
            time.sleep(0.02)
        raise AssertionError(f"gave up waiting for {what}; problems: {self.problems}")

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, text: str = "", *, shift: bool = False) -> None:
        """Press one key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        about = {
            "key": key,
            "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())),
            "modifiers": 8 if shift else 0,
        }
        if key == "Enter":
            text = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def offline(self, off: bool = True) -> None:
        """Take the network from the tab, or give it back."""
        self.call(
            "Network.emulateNetworkConditions", offline=off, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def tree(self) -> list[tuple[str, str]]:
        """Give what a screen reader is told: (role, name) of everything that is not ignored."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Save what the tab shows as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        options: Mapping[str, Any] = {"captureBeyondViewport": True, "clip": clip} if whole else {}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self.target)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Run a browser with an own profile."""
    running = Browser(profile)
    try:
        yield running
    finally:
        running.close()


class StaticServer:
    """A plain server of files, as anybody runs one; `asked` are the paths it was asked for."""

    def __init__(self, folder: Path, headers: Mapping[str, str]) -> None:
        self.asked: list[str] = []
        handler = functools.partial(_Handler, self.asked, headers, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop; nobody answers at the address any more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
    }

    def __init__(self, asked: list[str], more: Mapping[str, str], *args: Any, **options: Any) -> None:
        self._asked, self._more = asked, more
        super().__init__(*args, **options)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def end_headers(self) -> None:
        for name, value in self._more.items():
            self.send_header(name, value)
        super().end_headers()

    def do_GET(self) -> None:
        self._asked.append(self.path)
        super().do_GET()


@contextmanager
def static_server(folder: Path, headers: Mapping[str, str] | None = None) -> Iterator[StaticServer]:
    """Serve a folder on a free local port, with more headers where a server is to be more than a plain one."""
    running = StaticServer(folder, headers or {})
    try:
        yield running
    finally:
        running.close()
