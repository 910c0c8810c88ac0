"""The Chromium of the machine, and a page that remembers what went wrong in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM_VARIABLE = "ELASTANE_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# No sandbox: CI runs as root. The others keep the browser's own traffic off the network.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 30_000


def find_chromium() -> str | None:
    """Where a Chromium is: the variable, else the PATH."""
    named = os.environ.get(CHROMIUM_VARIABLE)
    if named:
        return named if Path(named).is_file() else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


NOT_FOUND = (
    f"no Chromium: ${CHROMIUM_VARIABLE} is not a file and none of {', '.join(NAMES)} is on the PATH; "
    "on Debian: apt-get install chromium"
)


@contextmanager
def browser(executable: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


@dataclass(slots=True)
class Tab:
    """A page with its console errors, and every address that it asked outside its origin."""

    page: Page
    origin: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._judge(request.url))

    def _judge(self, url: str) -> None:
        if not url.startswith((f"{self.origin}/", "blob:")):
            self.strangers.append(url)

    def open(self, place: str = "") -> Page:
        """`place` is what stands behind `#`."""
        self.page.goto(f"{self.origin}/{f'#{place}' if place else ''}")
        return self.page
