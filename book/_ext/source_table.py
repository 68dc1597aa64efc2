"""``{source-table}``: what each source states, shows and runs, with the claims that test it, from the register."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import yaml
from docutils import nodes
from docutils.statemachine import StringList
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from lib.page.claims import load_claims

logger = logging.getLogger(__name__)
HOW = {
    "stated": "as stated",
    "whole": "whole",
    "smaller": "smaller",
    "other": "other data",
    "missing": "**not here yet**",
}
_Text = Annotated[str, Field(min_length=1)]


class Price(BaseModel):
    """What the rest of an experiment would cost: the seconds of rows of a stored table, times how much more it is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    table: _Text  # CHAPTER/NAME of data/results
    where: dict[str, str | int | float]  # which rows
    times: float = Field(gt=0)
    does: _Text  # what that would be

    def text(self, results: Path) -> str:
        """Return the price in words."""
        frame = pd.read_parquet(results / f"{self.table}.parquet")
        for name, value in self.where.items():
            frame = frame[frame[name] == value]
        hours = self.times * frame["seconds"].sum() / 3600
        if not hours:
            raise ValueError(f"no row of {self.table} has {self.where}")
        return f"Not run: {self.does}, about {float(f'{hours:.2g}'):g} hours of a processor core."


class Item(BaseModel):
    """A theorem, figure or experiment of a source."""

    model_config = ConfigDict(extra="forbid", strict=True)

    what: _Text
    claims: list[str]
    how: Literal["stated", "whole", "smaller", "other", "missing"]
    note: str = ""
    price: Price | None = None


class Source(BaseModel):
    """A source, by its key in the register and in the bibliography, with all that it has."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: _Text
    title: _Text
    paper: _Text
    rows: list[Item]


def read_sources(register: Path) -> list[Source]:
    """Return the sources of a register of claims."""
    content = yaml.load(register.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return TypeAdapter(list[Source]).validate_python(content["sources"])


def problems(sources: list[Source], register: Path) -> list[str]:
    """Return a line for each claim that no row of its source names, each unknown one, and each unfit row."""
    claims, found = load_claims(register), []
    for source in sources:
        named = {name for row in source.rows for name in row.claims}
        found += [f"{source.key}: there is no claim {name}" for name in sorted(named - claims.keys())]
        of_source = {name for name, claim in claims.items() if claim.source.split()[0].rstrip(",") == source.key}
        found += [f"{source.key}: no row names {name}" for name in sorted(of_source - named)]
        for row in source.rows:
            if (row.how == "missing") == bool(row.claims):
                found.append(f"{source.key}: {row.what}: it has claims if and only if it is not missing")
            if row.how in ("smaller", "other") and not row.note:
                found.append(f"{source.key}: {row.what}: a note says how much smaller, or which data")
    return found


def source_markdown(source: Source, results: Path) -> str:
    """Return the table of one source, its rows in the order of the paper."""
    counts = {how: sum(row.how == how for row in source.rows) for how in HOW}
    words = ", ".join(f"{count} {HOW[how].strip('*')}" for how, count in counts.items() if count)
    lines = [f"{{cite:t}}`{source.paper}`: {words}.", "", "| what it has | how it stands | tested by |"]
    lines.append("|---|---|---|")
    for row in source.rows:
        price = [row.price.text(results)] if row.price else []
        note = " ".join([f"{row.note}."] * bool(row.note) + price)
        links = " ".join(f"{{claim}}`{name}`" for name in row.claims)
        lines.append(f"| {row.what[0].upper()}{row.what[1:]} | {HOW[row.how]}{': ' if note else ''}{note} | {links} |")
    return "\n".join(lines) + "\n"


class SourceTable(SphinxDirective):
    """One section per source."""

    def run(self) -> list[nodes.Node]:
        """Return the sections, and warn of rows that do not fit the claims."""
        register = Path(self.env.srcdir) / "claims.yml"
        self.env.note_dependency(str(register))
        sources = read_sources(register)
        for problem in problems(sources, register):
            logger.warning(problem, location=(self.env.docname, self.lineno), type="symmetry", subtype="sources")
        return [self._section(source) for source in sources]

    def _section(self, source: Source) -> nodes.section:
        label = f"source-{source.key.lower()}"
        section = nodes.section(ids=[label], names=[label])
        section += nodes.title("", f"{source.title} ({source.key})")
        self.state.document.note_explicit_target(section, section)
        text = source_markdown(source, Path(self.env.srcdir).parent / "data" / "results")
        self.state.nested_parse(StringList(text.splitlines(), source=self.env.docname), 0, section)
        return section


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("source-table", SourceTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
