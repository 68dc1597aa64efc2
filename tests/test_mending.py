"""What is mended in the pages for readers who listen to them."""

from __future__ import annotations

from html_pages import mended, notice

LINES = """<dt><span>(</span>
<dl>
<dd><em class="sig-param">one</em>,</dd>
<dd><em class="sig-param">two</em></dd>
</dl>
</dt>"""


def test_the_lines_of_a_signature_are_no_definitions() -> None:
    html = mended(LINES)
    assert html.count('<span class="sig-line"><em class="sig-param">') == html.count("</em>") == 2
    assert "<dl" not in html
    assert "<dd" not in html
    assert html.replace('<span class="sig-line">', "").count("</span>") == 3


def test_real_lists_stay() -> None:
    glossary = '<dl class="simple">\n<dt>a</dt><dd>b</dd>\n</dl>\n<dl>\n<dt>c</dt><dd>d</dd>\n</dl>'
    assert mended(glossary) == glossary
    assert mended('<div role="list" class="citation-list">') == '<div class="citation-list">'
    assert mended('<div role="list">') == '<div role="list">'


def test_a_reader_without_scripts_is_told() -> None:
    said = notice(lambda page: f"../{page}.html", "intro")
    assert said.startswith("<noscript>")
    assert '<a href="../intro.html">' in said
