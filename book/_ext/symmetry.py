"""Sphinx extension of the book: captioned code figures, evidence links, the ledger page, launch buttons."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

import author_year  # noqa: F401  (registers the bibliography style)
import colab
from external_names import resolve_external
from figures_and_panels import prepare_notebook
from ledger_page import claim_markdown, group_by_section, overview_markdown, seeds_markdown
from lib.page.claims import load_claims, load_register
from lib.page.ledger import BoundDates, Row, bound_dates, collect, expectation_problems, problems, read_records
from lib.page.seed_tables import read_other_seeds, read_seed_tables
from run_pages import at_scale, stored_tables

logger = logging.getLogger(__name__)
_BARS = re.compile(r"(`[^`]*`)|\|")
_LINK = "symmetry-claim"
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
        dates = bound_dates(register)
        messages = problems(rows, load_register(register).finished_chapters)
        for message in messages + [message for path in notebooks for message in expectation_problems(path)]:
            logger.warning(message, location=(self.env.docname, self.lineno), type="symmetry", subtype="ledger")
        sections = load_register(register).sections
        result = self._parse(overview_markdown(rows, sections))
        for name, (title, text) in _RUN_ANEW.items():
            if tables := read_seed_tables(results, name):
                others = read_other_seeds(results, claims, name)
                anew = [replace(row, others=others.get(row.claim.id)) for row in rows]
                text += "\n" + seeds_markdown(anew, tables, self.env.found_docs)
                result.append(self._run_anew(f"other-{name}", title, text))
        for letter, title, members in group_by_section(rows, sections):
            result.append(self._section(letter, title, members, dates))
        return result

    def _run_anew(self, label: str, title: str, markdown: str) -> nodes.section:
        section = nodes.section(ids=[label], names=[label])
        section += nodes.title("", title)
        self.state.document.note_explicit_target(section, section)
        section += self._parse(markdown)
        return section

    def _section(self, letter: str, title: str, rows: list[Row], dates: BoundDates | None) -> nodes.section:
        section = nodes.section(ids=[f"claims-{letter.lower()}"], names=[f"claims-{letter.lower()}"])
        section += nodes.title("", title)
        self.state.document.note_explicit_target(section, section)
        for row in rows:
            card = nodes.container(classes=["claim", f"claim-{row.state}"])
            card["ids"] = [f"claim-{row.claim.id.lower()}"]
            card += self._parse(claim_markdown(row, self.env.found_docs, dates))
            section += card
        return section

    def _parse(self, markdown: str) -> list[nodes.Node]:
        holder = nodes.Element()
        self.state.nested_parse(StringList(markdown.splitlines(), source=self.env.docname), 0, holder)
        return list(holder.children)


class Api(SphinxDirective):
    """``{api} lib``: a section per module of a package, so that none is forgotten."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        package = importlib.import_module(self.arguments[0])
        modules = [m for m in pkgutil.iter_modules(package.__path__) if not m.ispkg and m.name != "__main__"]
        return [self._section(f"{package.__name__}.{info.name}") for info in modules]

    def _section(self, module: str) -> nodes.section:
        section = nodes.section(ids=[f"api-{module.replace('.', '-')}"], names=[module])
        section += nodes.title("", module)
        self.state.document.note_explicit_target(section, section)
        lines = [
            "```{eval-rst}",
            f".. automodule:: {module}",
            "   :members:",
            "   :exclude-members: model_config",
            "   :special-members: __call__",
            "```",
        ]
        self.state.nested_parse(StringList(lines, source=self.env.docname), 0, section)
        return section


class ClaimLink(SphinxRole):
    """``{claim}`H2``` links to the claim's row in the ledger, ``{evidence}`H2 chapter``` to its panel in a chapter."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link, or a warning for an unknown claim."""
        claims = load_claims(Path(self.env.srcdir) / "claims.yml")
        name, _, chapter = self.text.partition(" ")
        if name not in claims:
            logger.warning(f"unknown claim {name!r}", location=self.get_location(), type="symmetry", subtype="claim")
            return [nodes.literal("", self.text)], []
        text = nodes.inline("", "in the chapter" if chapter else name)
        anchor = f"evidence-{name.lower()}" if chapter else f"claim-{name.lower()}"
        link = pending_xref(
            "", text, refdomain="", reftype=_LINK, reftarget=chapter or "ledger", refdoc=self.env.docname
        )
        link["anchor"], link["reftitle"] = anchor, claims[name].title
        return [link], []


class DefinitionLink(SphinxRole):
    """``{definition}`name``` links to the cell of this page that defines a function, ``name chapter`` to another's."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link."""
        name, _, chapter = self.text.strip().partition(" ")
        target = chapter or self.env.docname
        link = pending_xref(
            "", nodes.literal("", name), refdomain="", reftype=_LINK, reftarget=target, refdoc=self.env.docname
        )
        link["anchor"], link["reftitle"] = f"def-{name}", f"the cell that defines {name}"
        return [link], []


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
    control that comes closest to the bound.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link, or a warning where no such number is stored."""
        claim, check, which = [*self.text.split(), "worst"][:3]
        book = Path(self.env.srcdir)
        try:
            chapter = load_claims(book / "claims.yml")[claim].chapter
            self.env.note_dependency(str(book / f"{chapter}.ipynb"))
            record = next(r.content for r in read_records(book / f"{chapter}.ipynb") if r.content["id"] == claim)
            number = record["control"][check]["worst"] if which == "control" else record["measured"][check][which]
        except (KeyError, StopIteration, OSError):
            logger.warning(
                f"nothing is stored for {self.text!r}", location=self.get_location(), type="symmetry", subtype="claim"
            )
            return [nodes.literal("", self.text)], []
        link = pending_xref(
            "", nodes.inline("", str(number)), refdomain="", reftype=_LINK, reftarget=chapter, refdoc=self.env.docname
        )
        link["anchor"], link["reftitle"] = f"evidence-{claim.lower()}", f"{claim}, {check}, {which}"
        return [link], []


def resolve_claim(app: Sphinx, env: Any, node: pending_xref, content: nodes.Node) -> nodes.reference | None:
    """Point a claim link at its page and anchor."""
    if node["reftype"] != _LINK:
        return None
    uri = f"{app.builder.get_relative_uri(node['refdoc'], node['reftarget'])}#{node['anchor']}"
    return nodes.reference("", "", content, internal=True, refuri=uri, reftitle=node["reftitle"])


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
    """Read docstrings as they are meant: ``|G|`` is no substitution, and a property's first line no type."""
    lines[:] = [_BARS.sub(lambda match: match[1] or r"\|", line) for line in lines]
    if what == "property" and lines:  # napoleon would read "dimension: a number" as a type and its text
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
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sources_of_tests")
    app.setup_extension("claim_graph")
    for name in ("architecture", "figure_data", "folded_api", "landing", "ledger_data", "lighter", "mending", "social"):
        app.setup_extension(name)
    app.add_directive("api", Api)
    app.add_directive("ledger", Ledger)
    app.add_role("claim", ClaimLink())
    app.add_role("evidence", ClaimLink())
    app.add_role("commit", CommitLink())
    app.add_role("measured", Measured())
    app.add_role("definition", DefinitionLink())
    app.connect("config-inited", set_repository)
    app.connect("html-page-context", open_copies_in_colab, priority=502)  # after the theme's own
    app.connect("source-read", read_notebook)
    app.connect("autodoc-process-signature", shorten_model_signature)
    app.connect("autodoc-process-docstring", tidy_docstring, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", link_back, priority=900)  # after napoleon
    app.connect("missing-reference", resolve_claim)
    app.connect("missing-reference", resolve_external)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
