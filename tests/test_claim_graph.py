"""The map of the book: what rests on what is read from the chapters, not typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from claim_graph import MIME_TYPE, chapter_map, read_graph, used_by
from lib.page.claims import load_claims

BOOK = Path(__file__).parent.parent / "book"
TEXT = """# Ideas

```{prf:definition} Small
:label: def-small
Less than $\\epsilon$.
```

See {prf:ref}`thm-far`.

````{prf:theorem} Small things stay small
:label: thm-small
As {prf:ref}`def-small` says.
````

```{prf:proof}
By {prf:ref}`the lemma <lem-far>` and {prf:ref}`thm-small` itself.
```
"""


def chapter(folder: Path, name: str, text: str, *claims: str) -> Path:
    panels = [{"data": {MIME_TYPE: {"id": claim}}} for claim in claims]
    cells = [
        {"cell_type": "markdown", "source": text},
        {"cell_type": "code", "source": "", "outputs": [{"name": "stdout"}, *panels]},
    ]
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return path


def test_what_rests_on_what(tmp_path: Path) -> None:
    far = "```{prf:lemma} Far\n:label: lem-far\n```\n:::{prf:theorem}\n:label: thm-far\n:::\n```{prf:theorem}\n```\n"
    paths = [chapter(tmp_path, "ideas", TEXT, "T1", "T2", "T1"), chapter(tmp_path, "far", far)]
    nodes = read_graph(paths, {"T1": "A & B", "T2": "C"})
    assert {name: node.rests_on for name, node in nodes.items()} == {
        "def-small": [],
        "thm-small": ["def-small", "lem-far"],
        "T1": ["def-small", "thm-small", "thm-far"],
        "T2": ["thm-small"],
        "lem-far": [],
        "thm-far": [],
    }
    assert [node.name for node in used_by(nodes)["thm-small"]] == ["T1", "T2"]
    assert (nodes["T1"].chapter, nodes["T1"].anchor) == ("ideas", "evidence-t1")
    assert nodes["thm-far"].text == "theorem"
    picture = chapter_map("ideas", nodes)
    assert picture.count("<path") == sum(len(nodes[name].rests_on) for name in ("thm-small", "T1", "T2"))
    assert picture.count("map-foreign") == 2
    assert "T1 A &amp; B" in picture
    places = {m[2]: int(m[1]) for m in re.finditer(r'<rect x="(\d+)\.5".*?<text [^>]*>([^<]*)<', picture)}
    assert places["Small"] < places["Small things stay small"] < places["T1 A &amp; B"] == places["T2 C"]


def test_every_claim_of_the_book_rests_on_a_statement() -> None:
    titles = {name: claim.title for name, claim in load_claims().items()}
    nodes = read_graph(sorted(BOOK.glob("*.ipynb")), titles)
    claims = [node for node in nodes.values() if node.kind == "claim"]
    assert len(claims) == len(titles)
    assert [node.name for node in claims if not node.rests_on] == []
