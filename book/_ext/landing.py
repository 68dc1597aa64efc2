"""The opening page: a movement, a panel and thumbnails, all taken from what the chapters' notebooks store."""

from __future__ import annotations

import base64
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from lib.page.claims import load_claims
from lib.page.ledger import collect, count_line, kinds_line, read_records, stored_outputs
from lib.page.records import panel_html
from lib.page.seed_tables import read_seed_tables

logger = logging.getLogger(__name__)
_SIZE = (480, 300)  # pixels of a thumbnail
HEAVIEST = 15_000  # bytes of one


class Figure(NamedTuple):
    """A stored figure: its PNG file and its alternative text."""

    png: bytes
    alt: str


def stored_figure(notebook: Path, label: str) -> Figure:
    """Return a stored figure by its label."""
    for output in stored_outputs(notebook):
        texts = output.get("metadata", {}).get("image/png", {})
        if texts.get("label") == label:
            return Figure(base64.b64decode(output["data"]["image/png"]), texts["alt"])
    raise ValueError(f"{notebook.name} stores no figure {label!r}")


def stored_movie(notebook: Path, label: str) -> str:
    """Return the HTML of a stored movie by its label."""
    for output in stored_outputs(notebook):
        html = "".join(output.get("data", {}).get("text/html", ""))
        if f'<figure class="movie" id="{label}"' in html:
            return html
    raise ValueError(f"{notebook.name} stores no movie {label!r}")


def title_of(notebook: Path) -> str:
    """Return a chapter's title: its first heading."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.search(r"^# (.+)$", text, re.MULTILINE)[1]


def thumbnail(png: bytes, box: tuple[float, float, float, float] = (0, 0, 100, 100)) -> bytes:
    """Return a part of a figure, small, on white, as WebP of at most 15 kB.

    ``box`` is the part's left, top, right and bottom in per cent.
    """
    with Image.open(io.BytesIO(png)) as file:
        figure = file.convert("RGB")
    sides = (figure.width, figure.height, figure.width, figure.height)
    part = figure.crop(tuple(round(side * share / 100) for side, share in zip(sides, box, strict=True)))
    part.thumbnail(_SIZE, Image.Resampling.LANCZOS)
    card = Image.new("RGB", _SIZE, "white")
    card.paste(part, ((_SIZE[0] - part.width) // 2, (_SIZE[1] - part.height) // 2))
    for quality in (80, 60, 40, 20):
        buffer = io.BytesIO()
        card.save(buffer, "WEBP", quality=quality, method=6)
        if buffer.tell() <= HEAVIEST:
            break
    return buffer.getvalue()


class _FromNotebooks(SphinxDirective):
    """A directive that reads chapters: the page is made anew when one of them changes."""

    def notebook(self, name: str) -> Path:
        path = Path(self.env.srcdir) / f"{name}.ipynb"
        self.env.note_dependency(str(path))
        return path


class Hero(_FromNotebooks):
    """``{hero} CHAPTER MOVIE``: the content above a movie of a chapter, which plays by itself."""

    required_arguments = 2
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the words and, under them, the movie."""
        html = stored_movie(self.notebook(self.arguments[0]), self.arguments[1])
        html = html.replace(self.arguments[1], "movie-hero")
        words = nodes.container("", *self.parse_content_to_nodes(), classes=["hero-words"])
        picture = nodes.raw("", f'<div class="hero-movie">{html}</div>', format="html")
        return [nodes.container("", words, picture, classes=["hero"])]


class Panel(_FromNotebooks):
    """``{panel} CLAIM``: what a claim says and the panel of evidence that its chapter stores, with its links."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return statement, panel and links."""
        claim = load_claims(Path(self.env.srcdir) / "claims.yml")[self.arguments[0]]
        records = read_records(self.notebook(claim.chapter))
        panel = next(panel_html(claim, r.content) for r in records if r.content["id"] == claim.id)
        links = f"Ledger: {{claim}}`{claim.id}`. Panel: {{evidence}}`{claim.id} {claim.chapter}`. "
        links += f"Chapter: {{doc}}`{claim.chapter}`. Test: {{test}}`{claim.test}`."
        below = nodes.container("", *self.parse_text_to_nodes(links), classes=["evidence-links"])
        return [*self.parse_text_to_nodes(claim.statement), nodes.raw("", panel, format="html"), below]


class Cards(_FromNotebooks):
    """``{cards}``: a card per chapter, by parts, in the order of the contents; from the third part on they are folded.

    The content is YAML: for every chapter its ``question``, the label of the ``figure`` that the thumbnail shows, and
    possibly the ``part`` of it, as left, top, right and bottom in per cent.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return a section per part."""
        cards = yaml.safe_load("\n".join(self.content))
        result, seen = [], set()
        for tree in self.config.external_site_map.root.subtrees:
            names = [name for item in tree.items if (name := str(item).removesuffix(".ipynb")) in cards]
            seen |= set(names)
            if names:
                result.append(self._part(tree.caption, {name: cards[name] for name in names}, fold=len(result) > 1))
        for name in sorted(cards.keys() - seen):
            logger.warning(f"a card for {name!r}, which is not in the contents", location=self.get_location())
        return result

    def _part(self, caption: str, cards: Mapping[str, Mapping[str, Any]], fold: bool) -> nodes.section:
        name = nodes.make_id(f"part-{caption}")
        section = nodes.section(ids=[name], names=[name])
        section += nodes.title("", caption)
        self.state.document.note_explicit_target(section, section)
        grid = "\n".join(self._card(name, card) for name, card in cards.items())
        grid = f"::::{{grid}} 1 2 2 2\n:gutter: 3\n\n{grid}\n::::"
        if fold:  # under the titles of its chapters
            titles = " · ".join(title_of(self.notebook(name)) for name in cards)
            grid = f":::::{{dropdown}} {titles}\n{grid}\n:::::"
        section += self.parse_text_to_nodes(grid)
        for image in section.findall(nodes.image):
            image["loading"] = "lazy"
        return section

    def _card(self, name: str, card: Mapping[str, Any]) -> str:
        path = self.notebook(name)
        figure = stored_figure(path, card["figure"])
        picture = Path(self.env.doctreedir) / "thumbnails" / f"thumbnail-{name}.webp"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(thumbnail(figure.png, tuple(card.get("part", (0, 0, 100, 100)))))
        place = Path(os.path.relpath(picture, self.env.srcdir)).as_posix()
        options = f":img-top: {place}\n:img-alt: {figure.alt}\n:link: {name}\n:link-type: doc"
        return (
            f":::{{grid-item-card}} {title_of(path)}\n{options}\n:class-img-top: dark-light\n\n{card['question']}\n:::"
        )


class Counted(SphinxRole):
    """``{counted}`claims```: the ledger's count; ``kinds``, ``seeds`` and ``findings`` are further counts."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the text, made from the stored outputs."""
        book = Path(self.env.srcdir)
        results, claims = book.parent / "data" / "results", load_claims(book / "claims.yml")
        if self.text in ("claims", "kinds"):
            rows = collect(sorted(book.glob("*.ipynb")), claims)
            return [nodes.Text(count_line(rows) if self.text == "claims" else kinds_line(rows))], []
        if self.text == "seeds":
            tables = read_seed_tables(results)
            return [nodes.Text(f"{len(tables)} chapters, {sum(map(len, tables.values()))} runs")], []
        if self.text == "findings":
            return [
                nodes.Text(str(len(re.findall(r"(?m)^\*\*", (book / "findings.md").read_text(encoding="utf-8")))))
            ], []
        logger.warning(f"cannot count {self.text!r}", location=self.get_location())
        return [nodes.Text(self.text)], []


def bibtex(citation: Mapping[str, Any], year: str) -> str:
    """Return the BibTeX entry of a CITATION.cff."""
    authors = " and ".join(f"{{{author['name']}}}" for author in citation["authors"])
    title, _, subtitle = citation["title"].partition(": ")
    fields = {"author": authors, "title": f"{{{title}}}: {subtitle}", "year": year, "version": citation["version"]}
    if "repository-code" in citation:
        fields["url"] = citation["repository-code"]
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join(["@software{symmetry_measured,", *lines, "}"])


class BibTeX(SphinxDirective):
    """``{bibtex}``: how to cite the book, from its CITATION.cff."""

    def run(self) -> list[nodes.Node]:
        """Return the entry as code, to be copied."""
        path = Path(self.env.srcdir).parent / "CITATION.cff"
        self.env.note_dependency(str(path))
        text = bibtex(yaml.safe_load(path.read_text(encoding="utf-8")), self.config.copyright)
        return [nodes.literal_block(text, text, language="bibtex")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives and the role."""
    for name, directive in {"hero": Hero, "panel": Panel, "cards": Cards, "bibtex": BibTeX}.items():
        app.add_directive(name, directive)
    app.add_role("counted", Counted())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
