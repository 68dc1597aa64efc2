"""The ledger as Markdown and, for machines, as JSON, made from the rows of ``lib.page.ledger`` and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from sphinx.application import Sphinx

from figures_and_panels import function_link
from lib.page.claims import SIGNS, Claim, load_claims
from lib.page.ledger import BoundDates, Record, Row, collect, count_line, kinds_line
from lib.page.records import facts
from lib.page.seed_tables import held_expectations

_HEADER = ("check", "measured (worst)", "median", "spread", "values", "bound", "broken control (closest)")


def group_by_section(rows: Sequence[Row], titles: dict[str, str]) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield letter, heading and rows of each section; a claim's section is the letters of its id."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.claim.id.rstrip("0123456789"), []).append(row)
    for letters, members in groups.items():
        yield letters, f"{letters}. {titles[letters]}" if letters in titles else f"Claims {letters}", members


def overview_markdown(rows: Sequence[Row], sections: dict[str, str]) -> str:
    """Return the counts, in all and per section, named by its title, with a link to every claim."""
    states, cells = ("settled", "open", "failed"), []
    for letters, title, members in group_by_section(rows, sections):
        counts = [sum(row.state == state for row in members) for state in states]
        each = " ".join(f"{{claim}}`{row.claim.id}`" for row in members)
        cells.append((f"{{ref}}`{title} <claims-{letters.lower()}>`", f"{len(members)}: {each}", *counts))
    return (
        "\n".join([f"**{count_line(rows)}**; {kinds_line(rows)}.", "", *_table(("section", "claims", *states), cells)])
        + "\n"
    )


def claim_markdown(row: Row, documents: Collection[str], dates: BoundDates | None = None, citation: str = "") -> str:
    """Return the card of one claim, its numbers folded; ``dates`` says since when bounds stand, if that is known."""
    claim = row.claim
    star = " ★ beyond the sources" if claim.beyond_sources else ""
    where = f"{{doc}}`{claim.chapter}`" if claim.chapter in documents else f"`{claim.chapter}`, not written yet"
    lines = [f"**{claim.id}** {claim.title} · **{row.state}**{star}", "", claim.statement, ""]
    lines += [f"*Source:* {claim.source}. *Chapter:* {where}.", ""]
    lines += ["<details><summary>Evidence and numbers</summary>", "", f"*Evidence:* {claim.evidence}", ""]
    if claim.checks and not row.records:
        bounds = [f"{label_markdown(c.label)} {SIGNS[c.relation]} {c.bound:g}" for c in claim.checks.values()]
        lines.append(f"*Bounds:* {'; '.join(bounds)}.")
    for record in row.records:
        lines += ["", *_numbers(claim, record.content), "", _provenance(record, claim), ""]
    known = [(dates or {}).get((claim.id, name)) for name in claim.checks]
    if since := sorted({(date, commit) for commit, date in filter(None, known)}):
        stands = " and ".join(f"{date} (commit {{commit}}`{commit}`)" for date, commit in since)
        lines += ["", f"*{'Bound' if len(claim.checks) == 1 else 'Bounds'} unchanged since* {stands}.", ""]
    if dates is None:
        lines += ["", "*Since when the bounds stand* cannot be said: the history is not here.", ""]
    if others := row.others:
        pairs = ", ".join(
            f"{others.worst[name]:.3g} ({SIGNS[check.relation]} {check.bound:g}; control {others.control[name]:.3g})"
            for name, check in claim.checks.items()
        )
        held = f"*Other seeds:* held at {others.held} of {others.count}"
        lines += ["", f"{held}; worst value (bound; control): {pairs}.", ""]
    if citation:
        badge = f"badges/{claim.id}.svg"
        lines += ["", f'*Cite this claim:* {escape(citation)}. *Badge:* <a href="{badge}">{badge}</a>.', ""]
    lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def reruns_markdown(reported: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of who reran which claim, or the sentence that nobody has told so yet."""
    if not reported:
        return "Nobody has reported a rerun yet.\n"
    cells = [
        (f"{{claim}}`{row['claim']}`", row["outcome"], row["who"], row["date"], row["machine"], f"`{row['commit']}`")
        for row in reported
    ]
    return "\n".join(_table(("claim", "outcome", "who", "date", "machine", "commit"), cells)) + "\n"


def citation_of(row: Row, citation: Mapping[str, Any], home: str) -> str:
    """Return how to cite a claim: authors, title, version and its date, the claim and its permanent link."""
    who = " and ".join(author["name"] for author in citation["authors"])
    version = f"version {citation['version']} ({citation['date-released']})"
    return f"{who}, {citation['title']}, {version}, claim {row.claim.id}: {link_of(row, home)}"


def link_of(row: Row, home: str) -> str:
    """Return the permanent link of a claim; without an address of the book, that within it."""
    return f"{home}ledger.html#claim-{row.claim.id.lower()}"


def read_citation(book: Path) -> dict[str, Any] | None:
    """Return the file that says how to cite the book, where it is there."""
    path = book.parent / "CITATION.cff"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None


def home_of(app: Sphinx) -> str:
    """Return the address of the published book, or nothing."""
    return f"{app.config.html_baseurl.rstrip('/')}/" if app.config.html_baseurl else ""


def seeds_markdown(rows: Sequence[Row], tables: Mapping[str, pd.DataFrame], documents: Collection[str]) -> str:
    """Return the table of all chapters run anew, then a line for each thing that did not always hold."""
    cells, missed = [], []
    for chapter, table in tables.items():
        mine = [row for row in rows if row.claim.chapter == chapter and row.others]
        count, all_of = len(table), len(mine)
        held = [row for row in mine if row.others.held == count]
        room = sum(all(row.others.room(check) for check in row.claim.checks.values()) for row in held)
        expected, facts = held_expectations(table), table.attrs
        kept = sum(number == count for number in expected.values())
        name = f"{{doc}}`{chapter}`" if chapter in documents else f"`{chapter}`"
        numbers = (count, f"{len(held)} of {all_of}", f"{room} of {all_of}", f"{kept} of {len(expected)}")
        commit = f"`{facts['commit'][:7]}`{facts['commit'][40:]}, {facts['date']}"
        cells.append((name, *numbers, f"{facts['seconds'] / 3600:.2f}", commit))
        missed += [f"{{claim}}`{r.claim.id}` held at {r.others.held} of {count}" for r in mine if r not in held]
        missed += [f"{chapter}: *{escape(what)}* held at {k} of {count}" for what, k in expected.items() if k < count]
    header = ("chapter", "runs", "claims held at all", "with room", "expectations held at all", "hours", "commit")
    lines = _table(header, cells)
    lines += ["", *(f"- {text}" for text in missed)] if missed else []
    tight = []
    for row in (row for row in rows if row.others):
        for check in (c for c in row.claim.checks.values() if c.tight and not row.others.room(c)):
            numbers = f"{row.others.worst[check.name]:.3g}", f"{SIGNS[check.relation]} {check.bound:g}"
            label, why = map(label_markdown, (check.label, check.tight))
            tight.append((f"{{claim}}`{row.claim.id}`", label, *numbers, why))
    if tight:
        lines += ["", "<details><summary>Every check without room, and why</summary>", ""]
        lines += [*_table(("claim", "check without room", "worst value", "bound", "why"), tight), "", "</details>"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return plain text safe inside a Markdown table."""
    return re.sub(r"([\\`*_{}\[\]<>$|#~])", r"\\\1", text)


def label_markdown(label: str) -> str:
    """Return a check's label with its formulas, which stand between dollars, and the rest as in :func:`escape`.

    A bar would end the cell of a table, also in a formula, where it has a name.
    """
    parts = label.split("$")
    parts[::2] = map(escape, parts[::2])
    parts[1::2] = [formula.replace(r"\|", r"\Vert ").replace("|", r"\vert ") for formula in parts[1::2]]
    return "$".join(parts)


def _numbers(claim: Claim, content: Mapping[str, Any]) -> list[str]:
    cells = []
    for name, measured in content["measured"].items():
        label = label_markdown(claim.checks[name].label) if name in claim.checks else escape(name)
        numbers = [measured[key] for key in ("worst", "median", "spread", "count")]
        bound = f"{SIGNS[content['relation'][name]]} {content['bound'][name]:g}"
        cells.append((label, *numbers, bound, content["control"][name]["worst"]))
    return _table(_HEADER, cells)


def _provenance(record: Record, claim: Claim) -> str:
    content = record.content
    parts = [facts(content), *([f"commit {{commit}}`{record.commit}`"] if record.commit else [])]
    link = f"{{evidence}}`{claim.id} {record.chapter}`"
    return f"{', '.join(parts)}; {link}; {function_link(content['function'], record.chapter)}; {{test}}`{claim.test}`"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in (header, ["---"] * len(header), *rows)]


def as_data(rows: Iterable[Row], citation: dict[str, Any], home: str) -> dict[str, Any]:
    """Return the ledger: every claim with its checks, numbers and other seeds, its permanent link and its citation."""
    return {
        "title": citation["title"],
        "version": citation["version"],
        "date": str(citation["date-released"]),
        "claims": [_claim(row, citation, home) for row in rows],
    }


def _claim(row: Row, citation: dict[str, Any], home: str) -> dict[str, Any]:
    return asdict(row.claim) | {
        "state": row.state,
        "records": [{"chapter": r.chapter, "commit": r.commit} | r.content for r in row.records],
        "other_seeds": asdict(row.others) if row.others else None,
        "link": link_of(row, home),
        "badge": f"{home}badges/{row.claim.id}.svg",
        "citation": citation_of(row, citation, home),
    }


def write_json(app: Sphinx, error: Exception | None) -> None:
    """Write ``ledger.json`` into the built book."""
    book = Path(app.srcdir)
    citation = read_citation(book)
    if error is None and app.builder.format == "html" and citation:
        rows = collect(sorted(book.glob("*.ipynb")), load_claims(book / "claims.yml"), book.parent / "data" / "results")
        text = json.dumps(as_data(rows, citation, home_of(app)), ensure_ascii=False, indent=1)
        Path(app.outdir, "ledger.json").write_text(text + "\n", encoding="utf-8")
