"""Serve the rendered book on this machine and look at it in headless Chromium."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page

from lib.page.printing import find_chromium

ROOT = Path(__file__).parent.parent

_PATIENCE = 300_000  # milliseconds: a machine with other work to do as well is no fault of a page


def toc_pages() -> list[str]:
    """Return the names of the book's pages; those of runs begin with ``runs/``."""
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
    chapters = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"]] + [page["file"] for c in chapters for page in (c, *c.get("sections", []))]


def build_book(output: Path) -> Path:
    """Build the book as ``make book`` does, warnings being errors, and return the folder of its pages."""
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", "book", "-W", "--keep-going", "-n", "--all"]
    result = subprocess.run(
        [*command, "--path-output", str(output)], cwd=ROOT, capture_output=True, text=True, timeout=1800
    )
    problems = [line for line in result.stderr.splitlines() if "WARNING" in line or "ERROR" in line]
    assert result.returncode == 0, "\n".join(problems) or result.stdout[-2000:] + result.stderr[-2000:]
    return output / "_build" / "html"


def need_chromium() -> None:
    """Without Chromium skip, or fail where CI promises it."""
    if find_chromium():
        return
    if os.environ.get("CI"):
        pytest.fail("Chromium is not installed: .ci/run installs Debian's package chromium")
    pytest.skip(
        "Chromium is not installed, so the rendered book cannot be looked at (Debian: apt-get install chromium)"
    )


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def copyfile(self, *files: Any) -> None:
        """Send a file; a browser that has gone on to another page needs no more of it."""
        with suppress(ConnectionError):
            super().copyfile(*files)


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@dataclass
class Visit:
    """An open page and what happened on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)


@contextmanager
def visit(browser: Browser, url: str, width: int = 1280, theme: str = "light") -> Iterator[Visit]:
    """Open a page in a window of the given width, for a reader who prefers the given theme."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()
    result = Visit(page)
    page.on("console", lambda message: result.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: result.errors.append(str(error)))
    page.on("request", lambda request: result.outside.append(request.url) if _is_outside(request.url) else None)
    page.on("requestfinished", lambda request: result.loaded.add(urlsplit(request.url).path))
    page.on("response", lambda answer: result.missing.append(answer.url) if answer.status >= 400 else None)
    page.goto(url)
    page.evaluate("() => window.MathJax && MathJax.startup && MathJax.startup.promise")
    yield result
    context.close()


def _is_outside(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1"
