"""Bibliography labels by author and year, as the citations in the text have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle


class AuthorYearLabels(BaseLabelStyle):
    """Labels such as "Cohen and Welling, 2016", with a, b, … for papers of one year by the same authors."""

    def format_labels(self, sorted_entries: Sequence[Any]) -> Iterator[str]:
        """Yield one label per entry."""
        plain = [f"{names_of(entry)}, {entry.fields.get('year', 'n.d.')}" for entry in sorted_entries]
        seen: dict[str, int] = {}
        for label in plain:
            number = seen[label] = seen.get(label, -1) + 1
            yield label + (chr(ord("a") + number) if plain.count(label) > 1 else "")


class AuthorYearStyle(Style):
    """Entries sorted by author, with labels by author and year."""

    default_sorting_style = "author_year_title"
    default_label_style = AuthorYearLabels


def names_of(entry: Any) -> str:
    """Return the last names of the authors, or of the editors."""
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    last = [
        str(" ".join(person.prelast_names + person.last_names)).replace("{", "").replace("}", "") for person in people
    ]
    if len(last) > 2:
        return f"{last[0]} et al."
    return " and ".join(last) or entry.key


register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
