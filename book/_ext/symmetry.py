"""Sphinx extension of the book: captioned code figures, evidence links, the ledger page, launch buttons."""

from __future__ import annotations

import gc
import importlib
import json
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

import author_year  # noqa: F401  (registers the bibliography style)
import colab
from external_names import resolve_external
from figures_and_panels import FigureData, prepare_notebook, write_tables
from ledger_page import (
    citation_of,
    claim_markdown,
    group_by_section,
    home_of,
    overview_markdown,
    read_citation,
    reruns_markdown,
    seeds_markdown,
    write_json,
)
from lib.page.claims import load_claims, load_register
from lib.page.expectations import MIME_TYPE as EXPECTATION
from lib.page.ledger import (
    BoundDates,
    Row,
    bound_dates,
    collect,
    expectation_problems,
    problems,
    read_records,
    stored_outputs,
)
from lib.page.seed_tables import read_other_seeds, read_seed_tables
from run_pages import at_scale, stored_tables

logger = logging.getLogger(__name__)
_BARS = re.compile(r"(`[^`]*`)|\|")
_OTHER_SEEDS = """\
A number that holds at one seed may be luck. Every chapter was therefore run again, whole, at other values of its
parameter `seed` (the sweeps in `sweeps/seeds`; none of these seeds shares a random number with the chapter as it is
shown). A claim has *room* when its worst value over all these seeds is at most half of an upper bound, or at least
twice a lower one. What a chapter expects of its numbers beside the claims is counted as *expectations*; whatever did
not hold at every seed is named below the table, and after that every check without room, with the reason.
"""
_OTHER_GROUPS = """\
The bounds above were set by people who had seen some seeds. So chapters are run once more, at fifteen seeds or more
that nobody had looked at before (from 31 on) and with each group that they offer at least once (the sweeps in
`sweeps/groups`). The table has those that were run so far; a chapter of which one run stopped would not be in it.
"""
_RERUN = """\
A claim that others have computed again, on their own machines, is worth more than one that we have. The issue form
"I reran a claim" asks for the claim, the commit, the machine and the outcome, whatever it is; it becomes a row here.
"""
_RUN_ANEW = {"seeds": ("At other seeds", _OTHER_SEEDS), "groups": ("With every group", _OTHER_GROUPS)}


class Ledger(SphinxDirective):
    """``{ledger}``: the register of claims with the evidence that the notebooks store."""

    def run(self) -> list[nodes.Node]:
        """Return the overview and one section per group of claims."""
        source = Path(self.env.srcdir)
        register = source / "claims.yml"
        notebooks = [Path(self.env.doc2path(name)) for name in sorted(self.env.found_docs)]
        notebooks = [path for path in notebooks if path.suffix == ".ipynb"]
        for path in (register, *notebooks):
            self.env.note_dependency(str(path))
        results = source.parent / "data" / "results"
        claims = load_claims(register)
        rows = collect(notebooks, claims, results)
        dates = _dates(register)
        messages = problems(rows, load_register(register).finished_chapters)
        for message in messages + [message for path in notebooks for message in expectation_problems(path)]:
            logger.warning(message, location=(self.env.docname, self.lineno), type="symmetry", subtype="ledger")
        sections = load_register(register).sections
        result = self.parse_text_to_nodes(overview_markdown(rows, sections))
        for name, (title, text) in _RUN_ANEW.items():
            if tables := read_seed_tables(results, name):
                others = read_other_seeds(results, claims, name)
                anew = [replace(row, others=others.get(row.claim.id)) for row in rows]
                text += "\n" + seeds_markdown(anew, tables, self.env.found_docs)
                result.append(titled(self, f"other-{name}", title, self.parse_text_to_nodes(text)))
        if (reruns := source / "replications.yml").is_file():
            self.env.note_dependency(str(reruns))
            reported = reruns_markdown(yaml.safe_load(reruns.read_text(encoding="utf-8")) or [])
            text = f"{_RERUN}\n{reported}"
            result.append(titled(self, "who-reran-it", "Who reran it", self.parse_text_to_nodes(text)))
        for letter, title, members in group_by_section(rows, sections):
            cards = [self._card(row, dates) for row in members]
            result.append(titled(self, f"claims-{letter.lower()}", title, cards))
        return result

    def _card(self, row: Row, dates: BoundDates | None) -> nodes.container:
        name = f"claim-{row.claim.id.lower()}"
        card = nodes.container(ids=[name], classes=["claim", f"claim-{row.state}"])
        citation = read_citation(Path(self.env.srcdir))
        cited = citation_of(row, citation, home_of(self.env.app)) if citation else ""
        card += self.parse_text_to_nodes(claim_markdown(row, self.env.found_docs, dates, cited))
        return card


class Api(SphinxDirective):
    """``{api} lib``: a section per module of a package, so that none is forgotten."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        package = importlib.import_module(self.arguments[0])
        modules = [m for m in pkgutil.iter_modules(package.__path__) if not m.ispkg and m.name != "__main__"]
        return [self._section(f"{package.__name__}.{info.name}") for info in modules]

    def _section(self, module: str) -> nodes.section:
        options = "   :members:\n   :exclude-members: model_config\n   :special-members: __call__\n"
        content = self.parse_text_to_nodes(f"```{{eval-rst}}\n.. automodule:: {module}\n{options}```")
        return titled(self, f"api-{module.replace('.', '-')}", module, content)


class ClaimLink(SphinxRole):
    """``{claim}`H2``` links to the claim's row in the ledger, ``{evidence}`H2 chapter``` to its panel in a chapter."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link, or a warning for an unknown claim."""
        claims = load_claims(Path(self.env.srcdir) / "claims.yml")
        name, _, chapter = self.text.partition(" ")
        if name not in claims:
            logger.warning(f"unknown claim {name!r}", location=self.get_location(), type="symmetry", subtype="claim")
            return [nodes.literal("", self.text)], []
        anchor = f"evidence-{name.lower()}" if chapter else f"claim-{name.lower()}"
        text = nodes.inline("", "in the chapter" if chapter else name)
        return [link_to(self, text, chapter or "ledger", anchor, claims[name].title)], []


class DefinitionLink(SphinxRole):
    """``{definition}`name``` links to the cell of this page that defines a function, ``name chapter`` to another's."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link."""
        name, _, chapter = self.text.strip().partition(" ")
        hover = f"the cell that defines {name}"
        return [link_to(self, nodes.literal("", name), chapter or self.env.docname, f"def-{name}", hover)], []


class CommitLink(SphinxRole):
    """``{commit}`1a2b3c4``` names a commit, as a link to it where the checkout's origin is on GitHub."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the name or the link."""
        name = nodes.literal("", self.text)
        home = self.config.html_theme_options.get("repository_url")
        return [nodes.reference("", "", name, refuri=f"{home}/commit/{self.text}") if home else name], []


class Measured(SphinxRole):
    """``{measured}`B8 shared_reduction``` is the stored worst value of a check, as a link to its panel.

    A third word takes another number of the check: ``median``, ``spread``, ``count``, or ``control`` for the broken
    control that comes closest to the bound. ``{measured}`CHAPTER: EXPECTATION``` is the worst value of an expectation,
    as a link to its chapter; with `` %`` at its end in per cent.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link, or a warning where no such number is stored."""
        book = Path(self.env.srcdir)
        try:
            if ": " in self.text:
                return self._expectation(book)
            claim, check, which = [*self.text.split(), "worst"][:3]
            chapter = load_claims(book / "claims.yml")[claim].chapter
            self.env.note_dependency(str(book / f"{chapter}.ipynb"))
            record = next(r.content for r in read_records(book / f"{chapter}.ipynb") if r.content["id"] == claim)
            number = record["control"][check]["worst"] if which == "control" else record["measured"][check][which]
        except (KeyError, StopIteration, OSError):
            logger.warning(
                f"nothing is stored for {self.text!r}", location=self.get_location(), type="symmetry", subtype="claim"
            )
            return [nodes.literal("", self.text)], []
        text, hover = nodes.inline("", str(number)), f"{claim}, {check}, {which}"
        return [link_to(self, text, chapter, f"evidence-{claim.lower()}", hover)], []

    def _expectation(self, book: Path) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        chapter, what = self.text.removesuffix(" %").split(": ", 1)
        self.env.note_dependency(str(book / f"{chapter}.ipynb"))
        records = (o.get("data", {}).get(EXPECTATION) for o in stored_outputs(book / f"{chapter}.ipynb"))
        number = next(r["worst"][0] for r in records if r and r["what"] == what)
        text = f"{100 * number:.2g}\N{NO-BREAK SPACE}%" if self.text.endswith(" %") else str(number)
        return [link_to(self, nodes.inline("", text), chapter, "", what)], []


def titled(directive: SphinxDirective, label: str, title: str, content: list[nodes.Node]) -> nodes.section:
    """Return a section to which references lead by its label or, in the API, by the name of the module."""
    section = nodes.section("", nodes.title("", title), *content, ids=[label])
    section["names"] = [title if label.startswith("api-") else label]
    directive.state.document.note_explicit_target(section, section)
    return section


def link_to(role: SphinxRole, text: nodes.Node, page: str, anchor: str, hover: str) -> nodes.reference:
    """Return a link to an anchor of a page, which may be none that Sphinx knows."""
    uri = f"{role.env.app.builder.get_relative_uri(role.env.docname, page)}#{anchor}".rstrip("#")
    return nodes.reference("", "", text, internal=True, refuri=uri, reftitle=hover)


def read_notebook(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn the image-and-caption pairs of a notebook into figures, link its evidence, end a run with its tables."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    book = Path(app.srcdir)
    notebook, messages = prepare_notebook(json.loads(source[0]), load_claims(book / "claims.yml"), partial(_note, book))
    for message in messages:
        logger.warning(message, location=docname, type="symmetry", subtype="figure")
    if docname.startswith("runs/") and (text := at_scale(docname, Path(app.srcdir).parent)):
        notebook["cells"].append({"cell_type": "markdown", "id": "at-scale", "metadata": {}, "source": text})
    source[0] = json.dumps(notebook)


def _note(book: Path, record: Mapping[str, Any]) -> str:
    """Return the scale of a panel's numbers, the runs that stored some of them, and the day of its bound."""
    runs, dates = _runs(book.parent / "data" / "results"), _dates(book / "claims.yml")
    used = ", ".join(f"{{doc}}`/{run}`" for run in sorted({runs[table] for table in record.get("tables", ())}))
    scale = f"full, with numbers stored by {used}" if used else "the page's own, computed above"
    if dates is None:
        return f"Scale: {scale}. Bound: since when cannot be said, the history is not here."
    since = max(((day, commit) for (name, _), (commit, day) in dates.items() if name == record["id"]), default=None)
    return f"Scale: {scale}." + (f" Bound: unchanged since {since[0]} ({{commit}}`{since[1]}`)." if since else "")


_dates = cache(bound_dates)


@cache
def _runs(results: Path) -> dict[str, str]:
    """Return the run of every stored table."""
    return {path.relative_to(results).with_suffix("").as_posix(): run for path, _, run in stored_tables(results)}


def tidy_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Read docstrings as they are meant: ``|G|`` is no substitution, and the first line of a property no type."""
    lines[:] = [_BARS.sub(lambda match: match[1] or r"\|", line) for line in lines]
    if what in ("property", "attribute") and lines:  # napoleon would read "size: a number" as a type and its text
        lines[0] = lines[0].replace(": ", " – ")


def link_back(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say at the end of a function's description which claims it is evidence for."""
    found = _claims_by_function(Path(app.srcdir)).get(name, ())
    if found:
        lines += ["", f"Evidence for {', '.join(f':claim:`{claim}`' for claim in found)}.", ""]


@cache
def _claims_by_function(book: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in collect(sorted(book.glob("*.ipynb")), load_claims(book / "claims.yml")):
        for record in row.records:
            found.setdefault(record.content["function"], []).append(row.claim.id)
    return found


def set_repository(app: Sphinx, config: Config) -> None:
    """Add launch and repository buttons if the checkout's origin is on GitHub, else leave the download button."""
    found = colab.repository(Path(app.srcdir))
    if not found:
        return
    config.html_baseurl = config.html_baseurl or colab.published(found)
    config.html_theme_options |= {
        "repository_url": f"https://github.com/{found}",
        "repository_branch": "main",
        "path_to_docs": "book",
        "use_repository_button": True,
        "use_issues_button": True,
        "use_edit_page_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "colab_url": colab.OPENS,
            "notebook_interface": "jupyterlab",
        },
    }


def open_copies_in_colab(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Lead the button for Colab to the copy that it can show, on a branch of its own."""
    for group in context.get("header_buttons", ()):
        for button in group.get("buttons", ()):
            if str(button.get("url", "")).startswith(colab.OPENS):
                button["url"] = button["url"].replace("/blob/main/book/", f"/blob/{colab.BRANCH}/")


def shorten_model_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str] | None:
    """Leave out the constructor of a pydantic model: its fields and their limits are documented as attributes."""
    fields = what == "class" and hasattr(obj, "model_fields")
    return ("(**fields)", "") if fields else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    gc.set_threshold(100_000)  # millions of nodes that stay: to look for those that do not takes a sixth of the build
    app.setup_extension("sphinx.ext.autodoc")
    for name in (
        "architecture",
        "capsules",
        "claim_graph",
        "html_pages",
        "landing",
        "source_table",
        "sources_of_tests",
    ):
        app.setup_extension(name)
    app.add_directive("api", Api)
    app.add_directive("ledger", Ledger)
    roles = {"claim": ClaimLink(), "evidence": ClaimLink(), "commit": CommitLink(), "measured": Measured()}
    for name, role in (roles | {"definition": DefinitionLink(), "figuredata": FigureData()}).items():
        app.add_role(name, role)
    app.connect("build-finished", write_tables)
    app.connect("build-finished", write_json)
    app.connect("config-inited", set_repository)
    app.connect("html-page-context", open_copies_in_colab, priority=502)  # after the theme's own
    app.connect("source-read", read_notebook)
    app.connect("autodoc-process-signature", shorten_model_signature)
    app.connect("autodoc-process-docstring", tidy_docstring, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", link_back, priority=900)  # after napoleon
    app.connect("missing-reference", resolve_external)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
