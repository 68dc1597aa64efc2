"""The ledger: which claims of the register are settled by the evidence stored in the notebooks.

``python -m lib.page.ledger`` prints it; the book's ledger page is made from the same rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lib import ROOT
from lib.page.claims import Claim, load_claims, load_register
from lib.page.evidence import MIME_TYPE
from lib.page.expectations import MIME_TYPE as EXPECTATION
from lib.page.expectations import expectation_holds
from lib.page.records import record_holds
from lib.page.seed_tables import OtherSeeds, read_other_seeds

BOOK = ROOT / "book"
RESULTS = BOOK.parent / "data" / "results"
BoundDates = dict[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Record:
    """One stored piece of evidence."""

    chapter: str  #: whose notebook holds it
    content: dict[str, Any]  #: as :meth:`lib.page.evidence.Evidence.content` made it
    commit: str | None  #: the last that changed the notebook


@dataclass(frozen=True)
class Row:
    """One claim with all evidence for it, and how it fared at other seeds, if its chapter was run at some."""

    claim: Claim
    records: tuple[Record, ...]
    others: OtherSeeds | None = None

    @property
    def state(self) -> str:
        """Return ``"open"`` without evidence, ``"settled"`` if all evidence holds, else ``"failed"``."""
        if not self.records:
            return "open"
        return "settled" if all(record_holds(self.claim, r.content) for r in self.records) else "failed"


def stored_outputs(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the outputs that a notebook stores."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        yield from cell.get("outputs", [])


def _stored(path: Path, kind: str) -> list[Any]:
    return [output["data"][kind] for output in stored_outputs(path) if kind in output.get("data", {})]


def read_records(path: Path) -> list[Record]:
    """Return the evidence stored in one notebook, in the order of its cells."""
    records = _stored(path, MIME_TYPE)
    commit = last_commit(path) if records else None
    return [Record(path.stem, record, commit) for record in records]


def expectation_problems(path: Path) -> list[str]:
    """Return a message per stored expectation that does not hold."""
    broken = [content for content in _stored(path, EXPECTATION) if not expectation_holds(content)]
    return [f"{path.stem}: what is expected does not hold: {content['what']}" for content in broken]


def last_commit(path: Path) -> str | None:
    """Return the short name of the last commit that changed a file, ``None`` before the first or without history."""
    try:
        return _git(["git", "log", "-1", "--format=%h", "--", path.name], path).strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None


def bound_dates(register: Path) -> BoundDates | None:
    """Return, for every claim and check, the commit and the day at which its relation or bound was last changed.

    Read from the history of the register: what the bound is, and since when, can be compared with the day of a run.
    ``None`` says that the history is not here: there is no git, no repository, or a shallow clone, in which every line
    seems to be as old as the newest commit.
    """
    log = ["git", "log", "--format=%h %ad", "--date=short", "--", register.name]
    found: BoundDates = {}
    try:
        history = [line.split() for line in _git(log, register).splitlines()]
        later = {(c.id, n): (k.relation, k.bound) for c in load_claims(register).values() for n, k in c.checks.items()}
        for commit, date in history:  # from the newest back: a bound stands since the oldest version that has it
            content = yaml.load(_git(["git", "show", f"{commit}:./{register.name}"], register), yaml.CSafeLoader)
            bounds = {
                (row["id"], name): (check["relation"], float(check["bound"]))
                for row in content["claims"]
                for name, check in (row.get("checks") or {}).items()
            }
            later = {key: bound for key, bound in later.items() if bounds.get(key) == bound}
            found |= dict.fromkeys(later, (commit, date))
    except (OSError, subprocess.CalledProcessError):
        return None
    return found


def _git(command: list[str], path: Path) -> str:
    """Return what git answers beside a file; a shallow clone, whose history would lie, is as good as none."""
    ask = {"cwd": path.parent, "capture_output": True, "text": True, "check": True}
    if subprocess.run(["git", "rev-parse", "--is-shallow-repository"], **ask).stdout.strip() == "true":
        raise FileNotFoundError("the history is not here")
    return subprocess.run(command, **ask).stdout


def collect(notebooks: Iterable[Path], claims: dict[str, Claim], results: Path | None = None) -> list[Row]:
    """Return one row per claim, in the register's order, with the evidence found in the notebooks.

    ``results`` is the folder of stored results, in which ``CHAPTER/seeds.parquet`` has a row per other seed.
    """
    found: dict[str, list[Record]] = {name: [] for name in claims}
    for path in notebooks:
        for record in read_records(path):
            name = record.content["id"]
            if name not in found:
                raise ValueError(f"{path.name} holds evidence for {name!r}, which is not in the register of claims")
            found[name].append(record)
    others = {} if results is None else read_other_seeds(results, claims)
    return [Row(claim, tuple(found[name]), others.get(name)) for name, claim in claims.items()]


def problems(rows: Sequence[Row], finished: Iterable[str]) -> list[str]:
    """Return one message per claim that breaks the promise of its chapter: failed anywhere, or open where finished."""
    chapters = set(finished)
    messages = [f"claim {row.claim.id} is failed: refresh its chapter" for row in rows if row.state == "failed"]
    for row in rows:
        if row.state == "open" and row.claim.chapter in chapters:
            messages.append(f"claim {row.claim.id} is open, but its chapter {row.claim.chapter} is listed as finished")
    known = {row.claim.chapter for row in rows}
    return messages + [f"finished chapter {name} has no claims" for name in sorted(chapters - known)]


def count_line(rows: Sequence[Row]) -> str:
    """Return the counts in words, as ``"60 claims: 10 settled, 50 open, 0 failed"``."""
    states = Counter(row.state for row in rows)
    return f"{len(rows)} claims: " + ", ".join(f"{states[s]} {s}" for s in ("settled", "open", "failed"))


def kinds_line(rows: Sequence[Row]) -> str:
    """Return how many claims are of either kind, in words."""
    exact = sum(row.claim.to_rounding for row in rows)
    return f"{exact} identities that hold to rounding and {len(rows) - exact} measured effects"


def main() -> int:
    """Print the ledger (with "held at k of n other seeds"); return 1 if a claim breaks the promise of its chapter."""
    try:
        notebooks = sorted(BOOK.glob("*.ipynb"))
        rows = collect(notebooks, load_claims(), RESULTS)
        broken = problems(rows, load_register().finished_chapters)
        broken += [message for path in notebooks for message in expectation_problems(path)]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for row in rows:
        others = f"{row.others.held:3}/{row.others.count}" if row.others else "     –"
        print(f"{row.claim.id:5} {row.state:8}{others}  {row.claim.title}")
    print(count_line(rows))
    for message in broken:
        print(message, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
