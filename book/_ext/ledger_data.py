"""The ledger for machines: ``ledger.json`` beside the page, and how to cite one claim."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx

from lib.page.claims import load_claims
from lib.page.ledger import Row, collect


def as_data(rows: Iterable[Row], citation: dict[str, Any], home: str) -> dict[str, Any]:
    """Return the ledger: every claim with its checks, numbers and other seeds, its permanent link and its citation."""
    return {
        "title": citation["title"],
        "version": citation["version"],
        "claims": [_claim(row, citation, home) for row in rows],
    }


def _claim(row: Row, citation: dict[str, Any], home: str) -> dict[str, Any]:
    link = f"{home}ledger.html#claim-{row.claim.id.lower()}"
    who = " and ".join(author["name"] for author in citation["authors"])
    return asdict(row.claim) | {
        "state": row.state,
        "records": [{"chapter": r.chapter, "commit": r.commit} | r.content for r in row.records],
        "other_seeds": asdict(row.others) if row.others else None,
        "link": link,
        "citation": f"{who}, {citation['title']}, version {citation['version']}, claim {row.claim.id}: {link}",
    }


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the file into the built book."""
    book = Path(app.srcdir)
    if error is None and app.builder.format == "html" and (book.parent / "CITATION.cff").is_file():
        rows = collect(sorted(book.glob("*.ipynb")), load_claims(book / "claims.yml"), book.parent / "data" / "results")
        citation = yaml.safe_load((book.parent / "CITATION.cff").read_text(encoding="utf-8"))
        home = f"{app.config.html_baseurl.rstrip('/')}/" if app.config.html_baseurl else ""
        text = json.dumps(as_data(rows, citation, home), ensure_ascii=False, indent=1)
        Path(app.outdir, "ledger.json").write_text(text + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the file."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
