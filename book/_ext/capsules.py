"""Capsules: Python under a theorem that runs in the page, and the page on which all of them can be broken.

A capsule is a short file of ``book/capsules``. Its docstring says what it shows and ends with its claim; lines
``# break: name = value  # why`` and ``# try: …`` are its variants, ``# own table: name`` says what a reader may bring.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.metadata import version
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from lib.page.claims import load_claims

PAGE = "break_it"
_LIVE = Path(__file__).parent / "live"
_MODULES = """
_collections _collections_abc _functools _operator _py_abc _thread _types _weakref _weakrefset abc collections
copy copyreg functools heapq itertools keyword math operator reprlib sys types weakref
""".split()  # with what collections and functools need  # noqa: SIM905
_TITLE = re.compile(r'"""(.+) \((\w+)\)"""')
_VARIANT = re.compile(r"^# (break|try): (\w+) = (.*?)  # (.+)$", re.MULTILINE)
_OWN = re.compile(r"^# own (table|permutations|signal): (\w+)$", re.MULTILINE)
_FIRST = """\
Object.defineProperty(self, "indexedDB", { value: undefined });
self.__BRYTHON__ = { brython_path: "https://capsule.invalid/" }; // a blob's own address is none that Brython takes
"""
_EXAMPLES = {
    "table": "e a b c\na e c b\nb c a e\nc b e a",
    "permutations": "0 1 2 3\n1 0 3 2\n2 3 0 1\n3 2 1 0",
    "signal": "1 0 2 0 -1",
}


@dataclass(frozen=True)
class Variant:
    """A change of one line: ``break`` turns a line of the panel red, ``try`` leaves all of them green."""

    kind: str
    why: str
    source: str


@dataclass(frozen=True)
class Result:
    """What a capsule says: label, value, sign, bound and whether it holds, for every line; its output; its error."""

    rows: list[list[Any]]
    printed: str
    error: str
    line: int


@dataclass(frozen=True)
class Capsule:
    """A file of ``book/capsules``."""

    name: str
    source: str

    @cached_property
    def title(self) -> str:
        """What it shows."""
        return _TITLE.match(self.source)[1]

    @cached_property
    def claim(self) -> str:
        """The claim it belongs to."""
        return _TITLE.match(self.source)[2]

    @cached_property
    def own(self) -> list[tuple[str, str]]:
        """The kinds of data that a reader may bring, each with the name it gets."""
        return _OWN.findall(self.source)

    @cached_property
    def variants(self) -> list[Variant]:
        """Its variants, in the order of the file."""
        return [
            Variant(kind, why, changed(self.source, name, value))
            for kind, name, value, why in _VARIANT.findall(self.source)
        ]


def changed(source: str, name: str, value: str) -> str:
    """Return the code with another value in the line that sets a name."""
    return re.sub(rf"^{name} = .*$", lambda match: f"{name} = {value}", source, count=1, flags=re.MULTILINE)


def read_capsules(book: Path) -> dict[str, Capsule]:
    """Return all capsules of a book by their names."""
    return {path.stem: Capsule(path.stem, path.read_text("utf-8")) for path in sorted(book.glob("capsules/*.py"))}


def run(source: str) -> Result:
    """Run the text of a capsule here, as the page would."""
    spec = spec_from_file_location("capsule_runner", _LIVE / "runner.py")
    runner = module_from_spec(spec)
    spec.loader.exec_module(runner)
    rows, printed, ends = [], [], []
    runner.run(
        source,
        runner.in_cpython,
        printed.append,
        lambda *row: rows.append(list(row)),
        lambda *end: ends.append(end),
    )
    return Result(rows, "".join(printed), *ends[0])


def pack(source: str) -> str:
    """Return code as the end of a link, as ``capsules.js`` packs it."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.urlsafe_b64encode(deflate.compress(source.encode()) + deflate.flush()).decode().rstrip("=")


def engine() -> str:
    """Return the script that brings the interpreter: the source of the worker, as one string."""
    data = files("brython") / "data"
    text = (data / "brython_stdlib.js").read_text(encoding="utf-8")
    everything, _ = json.JSONDecoder().raw_decode(text, text.index("{", text.index("var scripts")))
    packed = {name: everything[name] for name in ("$timestamp", *_MODULES) if name in everything}
    for name, imports in {"fractions": ["math"], "runner": []}.items():
        packed[name] = [".py", (_LIVE / f"{name}.py").read_text(encoding="utf-8"), imports]
    modules = f"__BRYTHON__.use_VFS = true;\n__BRYTHON__.update_VFS({json.dumps(packed, ensure_ascii=False)});\n"
    core = (data / "brython.js").read_text(encoding="utf-8")
    parts = (_FIRST, core, "\n;\n", modules, (_LIVE / "worker.js").read_text(encoding="utf-8"))
    notice = f"/*! Brython {version('brython')}, under the BSD licence: see brython-licence.txt. */\n"
    return f"{notice}window.bookPython = {json.dumps(''.join(parts), ensure_ascii=False)};\n"


class CapsuleBox(SphinxDirective):
    """``{capsule} adjoint``: a capsule, folded; without JavaScript its code can be read."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the box."""
        return box(self, read_capsules(Path(self.env.srcdir))[self.arguments[0]])


def chapters_of_capsules(book: Path) -> dict[str, str]:
    """Return the chapter in which each capsule stands, under its theorem."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in book.glob("*.ipynb")}
    stands = {name: f"{{capsule}} {name}\\n" for name in read_capsules(book)}
    return {name: next(page for page, text in pages.items() if mark in text) for name, mark in stands.items()}


class AllCapsules(SphinxDirective):
    """``{capsules}``: all capsules, in the order of the register of claims."""

    def run(self) -> list[nodes.Node]:
        """Return the boxes."""
        order = list(load_claims(Path(self.env.srcdir) / "claims.yml"))
        where = chapters_of_capsules(Path(self.env.srcdir))
        found = sorted(read_capsules(Path(self.env.srcdir)).values(), key=lambda one: order.index(one.claim))
        result: list[nodes.Node] = []
        for one in found:
            place = f"{{claim}}`{one.claim}`, {{doc}}`{where[one.name]}`:"
            result += [*self.parse_text_to_nodes(place), *box(self, one)]
        return result


class BrokenAttempts(SphinxDirective):
    """``{attempts}``: what breaks each capsule, and which lines turn red, found by running all variants."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        lines = ["| claim | what is broken | lines that turn red |", "| --- | --- | --- |"]
        for one in read_capsules(Path(self.env.srcdir)).values():
            for variant in (variant for variant in one.variants if variant.kind == "break"):
                red = "; ".join(row[0].replace("|", r"\|") for row in run(variant.source).rows if not row[4])
                link = f'<a href="#try={one.name}.{pack(variant.source)}">{escape(variant.why)}</a>'
                lines.append(f"| {{claim}}`{one.claim}` | {link} | {red} |")
        path = Path(self.env.srcdir, "attempts.yml")
        self.env.note_dependency(str(path))
        for found in yaml.safe_load(path.read_text(encoding="utf-8")) or ():
            link = f'<a href="{escape(found["link"])}">{escape(found["what"])}</a>, {escape(found["who"])}'
            lines.append(f"| {{claim}}`{found['claim']}` | {link} | {escape(found['red'])} |")
        return self.parse_text_to_nodes("\n".join(lines) + "\n")


class OwnData(SphinxDirective):
    """``{own-data}``: a form for a reader's own table, permutations or signal."""

    def run(self) -> list[nodes.Node]:
        """Return the place of the form, which needs JavaScript."""
        examples = "".join(f' data-{kind}="{escape(text)}"' for kind, text in _EXAMPLES.items())
        text = "<p>This form needs JavaScript; the code below can be run by any Python.</p>"
        return [nodes.raw("", f'<div class="capsule-own"{examples}>{text}</div>', format="html")]


def box(directive: SphinxDirective, capsule: Capsule) -> list[nodes.Node]:
    """Return a capsule as a box that unfolds."""
    env = directive.env
    env.note_dependency(str(Path(env.srcdir, "capsules", f"{capsule.name}.py")))
    data = {
        "capsule": capsule.name,
        "page": env.app.builder.get_relative_uri(env.docname, PAGE),
        "home": f"{env.config.html_baseurl.rstrip('/')}/" if env.config.html_baseurl else "",
        "issues": env.config.html_theme_options.get("repository_url", ""),
        "own": ";".join(map(" ".join, capsule.own)),
    }
    attributes = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items() if value)
    start = f'<details class="capsule" id="capsule-{capsule.name}"{attributes}>'
    summary = f"<summary><strong>Break this theorem</strong>: {escape(capsule.title)}</summary>"
    code = nodes.literal_block(capsule.source, capsule.source, language="python")
    return [nodes.raw("", start + summary, format="html"), code, nodes.raw("", "</details>", format="html")]


def badge(claim: str, state: str) -> str:
    """Return a small picture that says how a claim stands."""
    width, colour = 8 * len(claim) + 14, "#00725a" if state == "settled" else "#b3402a"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 60}" height="20" role="img" '
        f'aria-label="{claim}: {state}"><title>{claim}: {state}</title><rect width="{width}" height="20" fill="#444"/>'
        f'<rect x="{width}" width="60" height="20" fill="{colour}"/><g fill="#fff" text-anchor="middle" '
        f'font-family="Verdana,sans-serif" font-size="11"><text x="{width / 2:g}" y="14">{claim}</text>'
        f'<text x="{width + 30}" y="14">{state}</text></g></svg>\n'
    )


def load_script(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the script on pages that have a capsule, and nowhere else."""
    if 'data-capsule="' in context.get("body", ""):
        context["body"] += f'<script src="{context["pathto"]("_static/capsules.js", resource=True)}"></script>'


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write the interpreter beside the pages, and the badges, from the ledger that was written before."""
    if error is not None or app.builder.format != "html" or not Path(app.srcdir, "capsules").is_dir():
        return
    static = Path(app.outdir, "_static")  # every page would load a script from the book's own _static
    (static / "capsule-python.js").write_text(engine(), encoding="utf-8")
    (static / "capsules.js").write_bytes((_LIVE / "capsules.js").read_bytes())
    ledger = Path(app.outdir, "ledger.json")
    folder = Path(app.outdir, "badges")
    folder.mkdir(exist_ok=True)
    for claim in json.loads(ledger.read_text(encoding="utf-8"))["claims"] if ledger.is_file() else ():
        (folder / f"{claim['id']}.svg").write_text(badge(claim["id"], claim["state"]), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register directives and files."""
    directives = {"capsule": CapsuleBox, "capsules": AllCapsules, "attempts": BrokenAttempts, "own-data": OwnData}
    for name, directive in directives.items():
        app.add_directive(name, directive)
    app.connect("html-page-context", load_script)
    app.connect("build-finished", write_files, priority=900)  # after the ledger
    return {"parallel_read_safe": True, "parallel_write_safe": True}
