"""The ledger page as Markdown, made from the rows of ``lib.page.ledger`` and from nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from figures_and_panels import function_link
from lib.page.claims import SIGNS, Claim
from lib.page.ledger import BoundDates, Record, Row, count_line
from lib.page.records import facts
from lib.page.seed_tables import SeedTable

_HEADER = ("check", "measured (worst)", "median", "spread", "values", "bound", "broken control (closest)")


def group_by_section(rows: Sequence[Row], titles: dict[str, str]) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield letter, heading and rows of each section; a claim's section is the letters of its id."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_letters(row), []).append(row)
    for letters, members in groups.items():
        yield letters, f"{letters}. {titles[letters]}" if letters in titles else f"Claims {letters}", members


def overview_markdown(rows: Sequence[Row], sections: dict[str, str]) -> str:
    """Return the counts, in all and per section, named by its title, with a link to every claim."""
    header = ("section", "claims", "settled", "open", "failed")
    lines = [f"**{count_line(rows)}.**", "", _line(header), _line(["---"] * len(header))]
    for letters, title, members in group_by_section(rows, sections):
        counts = [sum(row.state == state for row in members) for state in ("settled", "open", "failed")]
        each = " ".join(f"{{claim}}`{row.claim.id}`" for row in members)
        lines.append(_line((f"{{ref}}`{title} <claims-{letters.lower()}>`", f"{len(members)}: {each}", *counts)))
    return "\n".join(lines) + "\n"


def claim_markdown(row: Row, documents: Collection[str], dates: BoundDates | None = None) -> str:
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
        lines += ["", *_table(row, record), "", _provenance(record, claim), ""]
    known = [(dates or {}).get((claim.id, name)) for name in claim.checks]
    if since := sorted({(date, commit) for commit, date in filter(None, known)}):
        stands = " and ".join(f"{date} (commit {{commit}}`{commit}`)" for date, commit in since)
        lines += ["", f"*{'Bound' if len(claim.checks) == 1 else 'Bounds'} unchanged since* {stands}.", ""]
    if dates is None:
        lines += ["", "*Since when the bounds stand* cannot be said: the history is not here.", ""]
    if row.others:
        lines += ["", _other_seeds(row), ""]
    lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _other_seeds(row: Row) -> str:
    """Return one line: at how many other seeds the claim held, and the worst values beside their bounds."""
    checks, others = row.claim.checks, row.others
    pairs = [
        f"{others.worst[name]:.3g} ({SIGNS[check.relation]} {check.bound:g}; control {others.control[name]:.3g})"
        for name, check in checks.items()
    ]
    return f"*Other seeds:* held at {others.held} of {others.count}; worst value (bound; control): {', '.join(pairs)}."


def seeds_markdown(rows: Sequence[Row], tables: Sequence[SeedTable], documents: Collection[str]) -> str:
    """Return the table of all chapters run anew, then a line for each thing that did not always hold."""
    header = (
        "chapter",
        "runs",
        "claims held at all",
        "with room",
        "expectations held at all",
        "hours",
        "commit",
    )
    lines, missed = [_line(header), _line(["---"] * len(header))], []
    for chapter in tables:
        mine = [row for row in rows if row.claim.chapter == chapter.chapter and row.others]
        count = len(chapter.table)
        held = [row for row in mine if row.others.held == count]
        room = [row for row in held if all(row.others.room(check) for check in row.claim.checks.values())]
        expected = chapter.expectations
        name = f"{{doc}}`{chapter.chapter}`" if chapter.chapter in documents else f"`{chapter.chapter}`"
        kept = sum(number == count for number in expected.values())
        facts = chapter.provenance
        commit = f"`{facts['commit'][:7]}`{facts['commit'][40:]}, {facts['date']}"
        lines.append(
            _line(
                (
                    name,
                    count,
                    f"{len(held)} of {len(mine)}",
                    f"{len(room)} of {len(mine)}",
                    f"{kept} of {len(expected)}",
                    f"{facts['seconds'] / 3600:.2f}",
                    commit,
                )
            )
        )
        missed += [f"{{claim}}`{r.claim.id}` held at {r.others.held} of {count}" for r in mine if r not in held]
        missed += [
            f"{chapter.chapter}: *{escape(what)}* held at {k} of {count}" for what, k in expected.items() if k < count
        ]
    lines += ["", *(f"- {text}" for text in missed)] if missed else []
    tight = [
        _line(
            (
                f"{{claim}}`{r.claim.id}`",
                label_markdown(c.label),
                f"{r.others.worst[c.name]:.3g}",
                f"{SIGNS[c.relation]} {c.bound:g}",
                escape(c.tight),
            )
        )
        for r in rows
        if r.others
        for c in r.claim.checks.values()
        if c.tight and not r.others.room(c)
    ]
    if tight:
        header = ("claim", "check without room", "worst value", "bound", "why")
        lines += ["", "<details><summary>Every check without room, and why</summary>", ""]
        lines += [_line(header), _line(["---"] * len(header)), *tight, "", "</details>"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return plain text safe inside a Markdown table."""
    return re.sub(r"([\\`*_{}\[\]<>$|#~])", r"\\\1", text)


def label_markdown(label: str) -> str:
    """Return a check's label with its formulas, which stand between dollars, and the rest as in :func:`escape`."""
    parts = label.split("$")
    parts[::2] = map(escape, parts[::2])
    return "$".join(parts)


def _table(row: Row, record: Record) -> list[str]:
    content = record.content
    lines = [_line(_HEADER), _line(["---"] * len(_HEADER))]
    for name, measured in content["measured"].items():
        check = row.claim.checks.get(name)
        label = label_markdown(check.label) if check else escape(name)
        numbers = [measured[key] for key in ("worst", "median", "spread", "count")]
        bound = f"{SIGNS[content['relation'][name]]} {content['bound'][name]:g}"
        lines.append(_line((label, *numbers, bound, content["control"][name]["worst"])))
    return lines


def _provenance(record: Record, claim: Claim) -> str:
    content = record.content
    parts = [facts(content), *([f"commit {{commit}}`{record.commit}`"] if record.commit else [])]
    link = f"{{evidence}}`{claim.id} {record.chapter}`"
    return f"{', '.join(parts)}; {link}; {function_link(content['function'], record.chapter)}; {{test}}`{claim.test}`"


def _letters(row: Row) -> str:
    match = re.match(r"[A-Za-z]+", row.claim.id)
    return match[0] if match else row.claim.id


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
