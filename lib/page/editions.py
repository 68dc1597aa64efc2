"""Editions of the built book: a PDF for paper, and a zip that reads and runs without a network.

``python -m lib.page.editions`` makes both from ``book/_build/html``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

import yaml

from lib import ROOT, __version__
from lib.page.printing import CannotPrint, check_built, chromium, print_book

BOOK = ROOT / "book"
NAME = f"symmetry-measured-{__version__}"
_NOT_READ = {".map", ".buildinfo"}


def contents(book: Path = BOOK) -> list[tuple[str, list[str]]]:
    """Return the parts of the book in their order: the caption of each and the names of its pages."""
    toc = yaml.safe_load((book / "_toc.yml").read_text(encoding="utf-8"))
    parts = [("", [{"file": toc["root"]}])] + [(part["caption"], part["chapters"]) for part in toc["parts"]]
    return [(part, [p["file"] for c in chapters for p in (c, *c.get("sections", []))]) for part, chapters in parts]


def pack(html: Path, target: Path, root: Path = ROOT) -> None:
    """Write a zip of everything that the repository tracks, with the built book as its folder ``html``."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        raise CannotPrint(f"the zip is made from a git checkout, which {root} is not") from None
    files = {name: root / name for name in listed.split("\0") if name}
    built = [path for path in html.rglob("*") if path.suffix not in _NOT_READ and path.name not in _NOT_READ]
    files |= {f"html/{path.relative_to(html).as_posix()}": path for path in built}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            if path.is_file():
                archive.write(path, f"{NAME}/{name}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lib.page.editions", description=__doc__.splitlines()[0])
    parser.add_argument("--html", type=Path, default=BOOK / "_build" / "html", metavar="FOLDER", help="the built book")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "editions", metavar="FOLDER", help="where they go")
    options = parser.parse_args(arguments)
    pdf, archive = (options.output / f"{NAME}{suffix}" for suffix in (".pdf", ".zip"))
    try:
        check_built(options.html, contents())
        options.output.mkdir(parents=True, exist_ok=True)
        with chromium() as browser:
            print_book(browser, options.html.resolve(), contents(), pdf)
        pack(options.html, archive)
    except (CannotPrint, OSError) as error:
        print(f"No edition was made: {error}", file=sys.stderr)
        return 1
    for path in (pdf, archive):
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
