"""What other sites show of a page."""

from __future__ import annotations

import html
import re

from docutils.core import publish_doctree

from html_pages import description, tags

LONG = "The number is computed by the code on the page, with the bound it had to meet and a broken control. " * 3


def test_the_first_paragraph_that_says_something() -> None:
    assert description(
        publish_doctree(f"Title\n=====\n\nShort.\n\n{LONG}\n\nMore of the same, at some length here.")
    ) == (LONG[:200].rpartition(" ")[0] + " …")
    formula = "A paragraph that is long enough but holds :math:`a^2`, which is of no use there."
    plain = "A paragraph that is long enough and holds no formula at all."
    assert description(publish_doctree(f"{formula}\n\n{plain}")) == plain
    assert description(publish_doctree("Short.")) == ""


def test_tags_are_escaped_and_never_empty() -> None:
    shown = tags('A "title" & more', "Site", "", "", "https://a.b/c.webp")
    found = dict(re.findall(r'<meta (?:name|property)="([^"]*)" content="([^"]*)">', shown))
    assert html.unescape(found["og:title"]) == 'A "title" & more'
    assert found["og:image"] == "https://a.b/c.webp"
    assert not {"description", "og:description", "og:url"} & found.keys()
    assert all(found.values())
