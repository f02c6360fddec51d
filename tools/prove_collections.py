"""Prove that docs/howto/collect.md leads to four published pages: run it with thousands of devices and real browsers.

``make prove ARGS="collections"`` runs this. Every block of the page is run as it is, in an empty folder, but for the
number of devices: each is ``hushquery.report`` with a state file of its own, and beside them are browsers with the
JavaScript client. It then compares the releases with what the devices hold, and keeps pictures of the pages.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chromium
from documents import blocks, run_block, shell
from hushquery.release import load
from hushquery.task import Task

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "howto" / "collect.md"
ADDRESS = "http://127.0.0.1:8090"
MOST_AWAY = 5  # standard errors that an estimate may be from what the devices hold
AT_ONCE, EACH = 4, 125  # programs at a time, and devices of each kind in one
#: The task files of the page, by kind, and what the devices hold of each value, or on average.
KINDS = {"setting": "theme", "number": "minutes", "text": "home-pages", "searches": "searches"}
TRUTH = {
    "setting": {"dark": 0.5, "light": 0.25, "system": 0.25, "*": 0.0},
    "number": {"mean": 35.0},
    "text": {"news.example": 0.75, "weather.example": 0.25},
    "searches": {"news": 0.5, "bus times": 0.25},
}


def count_commands(page: str) -> dict[str, int]:
    """Count what a person of one kind types: what names this kind, or none of the four, and the two programs."""
    lines = [
        line
        for block in blocks(page)
        if block.kind != "python" and block.not_run is None
        for line in re.sub(r"\\\n(> )?", " ", block.text).splitlines()
        if re.match(r"(\$ |timeout|hushquery|\(umask)", line)
    ]
    counts = {}
    for kind, name in KINDS.items():
        others = (
            [n for n in KINDS.values() if n != name]
            + ["words.txt"] * (kind != "text")
            + ["optin"] * (kind != "searches")
        )
        counts[kind] = 1 + sum(name in line or not any(other in line for other in others) for line in lines)
    return counts


def run_devices(program: str, folder: Path, devices: int) -> list[str]:
    """Run the page's program for many devices, some at a time; what went wrong."""
    if program.count("range(120)") != 1:
        return ["the program of the page has changed: it has no range(120)"]

    def part(start: int) -> str:
        numbers = f"range({start}, {min(devices, start + EACH)})"
        (folder / f"devices-{start}.py").write_text(program.replace("range(120)", numbers), encoding="utf-8")
        return shell(f"python devices-{start}.py", folder)[1].strip()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        printed = set(pool.map(part, range(0, devices, EACH)))
    return sorted(printed - {"{'stored'}"})


def run_browsers(folder: Path, profile: Path, browsers: int) -> int:
    """Let a browser of its own report each value, with the client that the collector serves; return how many did."""
    hold: dict[str, Sequence[object]] = {
        "theme": ["dark", "dark", "light", "system"],
        "minutes": [15, 45, 30, 50],
        "home-pages": ["news.example"] * 3 + ["weather.example"],
        "searches": [
            ["news", "https://news.example"],
            ["bus times", ""],
            "a rash on my arm",
            ["news", "https://news.example"],
        ],
    }
    stored = 0
    with chromium.browser(profile) as browser:
        for name, values in hold.items():
            task = Task.load(folder / f"{name}.toml").id
            for number in range(browsers):
                page = browser.page(alone=True)
                page.open(f"{ADDRESS}/sites/{task}/")
                call = f"report(location.origin, {json.dumps(values[number % 4])}, {{ task: '{task}' }})"
                outcome = page.run(
                    f"import('./client.mjs').then(({{ report }}) => {call}).then((done) => done.outcome)"
                )
                stored += outcome == "stored"
                page.close()
    return stored


def check_releases(folder: Path) -> list[str]:
    """Save and verify what was published, and compare it with the truth; what is not as it should be."""
    wrong = []
    for kind, name in KINDS.items():
        target = f"saved-{kind}"
        save = f"hushquery collect save --task example-{name} --out {target} && hushquery verify {target}"
        code, printed = shell(f"{save} && hushquery show {target}", folder)
        print(f"\n-- {kind}\n{printed.strip()}")
        if code:
            wrong.append(f"{kind}: exit {code}")
            continue
        tables = load(folder / target).tables
        rows = (tables["queries"] if kind == "searches" else tables["estimates"]).to_pylist()
        found = {row.get("value", row.get("query")): row for row in rows}
        for value, truth in TRUTH[kind].items():
            row = found.get(value)
            if row is None:
                wrong.append(f"{kind}: {value} is not in it")
                continue
            away = (row.get("estimate", row.get("share")) - truth) / row["stderr"]
            print(f"{value}: the truth is {truth}, {away:+.1f} standard errors away")
            if abs(away) > MOST_AWAY:
                wrong.append(f"{kind}: {value} is {away:.1f} standard errors away")
    return wrong


def take_pictures(folder: Path, profile: Path, pictures: Path) -> list[str]:
    """Keep the published pages as pictures: wide and narrow, light and dark; what the browser complains of."""
    wrong = []
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium.browser(profile) as browser:
        for kind, name in KINDS.items():
            site = f"{ADDRESS}/sites/{Task.load(folder / f'{name}.toml').id}/"
            for width, dark in ((1280, False), (1280, True), (390, False), (390, True)):
                page = browser.page(width, 900, dark=dark)
                page.open(site)
                page.screenshot(pictures / f"{kind}-{width}-{'dark' if dark else 'light'}.png", whole=True)
                wide = page.run("document.documentElement.scrollWidth")
                contrast = page.run(chromium.CONTRAST)
                if page.problems or wide > width or contrast < 4.5:
                    wrong.append(f"{kind} at {width}: {wide} wide, contrast {contrast:.1f}, {page.problems}")
                page.close()
    return wrong


def main() -> int:
    """Run the page; 0 if all of it held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2000)
    parser.add_argument("--browsers", type=int, default=20)
    parser.add_argument("--pictures", type=Path, default=None)
    given = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    counts = count_commands(text)
    print("commands from nothing to a page:", ", ".join(f"{kind} {number}" for kind, number in counts.items()))
    wrong = [f"{kind} takes {number} commands" for kind, number in counts.items() if number >= 10]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name) / "page"
        folder.mkdir()
        for block in (block for block in blocks(text) if block.not_run is None):
            start = time.monotonic()
            if "pool.map(report" in block.text:
                wrong += run_devices(block.text, folder, given.devices)
                print(f"{given.devices:,} Python devices of each kind reported: {time.monotonic() - start:.0f} s")
                start = time.monotonic()
                stored = run_browsers(folder, Path(name) / "browsers", given.browsers)
                print(f"{stored} reports of {given.browsers} browsers of each kind: {time.monotonic() - start:.0f} s")
                if stored != len(KINDS) * given.browsers:
                    wrong.append("not all browsers were heard")
                continue
            if block.text.startswith("kill"):
                wrong += check_releases(folder)
                wrong += take_pictures(folder, Path(name) / "viewer", given.pictures or Path(name) / "pictures")
            wrong += run_block(block, folder)
    print("\n" + ("\n".join(wrong) or "all of it held"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
