"""What stands in the way of a reader who cannot see, or who has no mouse: axe-core on an open page of the book."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from playwright.sync_api import Page

# Nearly all of the time goes into contrast, word by word. What is written in one colour, size and weight on one ground
# has one contrast, so one place stands for all; in code the coloured words that repeat a class become plain text, and
# the glyphs of a formula, which carry no text and no role, go.
_PREPARE = """() => {
  document.querySelectorAll('mjx-container svg').forEach(picture => picture.replaceChildren());
  const seen = new Set();
  for (const word of document.querySelectorAll('pre span')) {
    const cell = word.closest('.cell_input, .cell_output, [class*="highlight-"]');
    const key = word.className && `${word.className} ${cell && cell.className}`;
    if (word.id || (key && !seen.has(key))) seen.add(key);
    else word.replaceWith(...word.childNodes);
  }
  const ground = element => {
    let found = '';
    for (let e = element; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.opacity !== '1') found += style.opacity;
      if (style.backgroundColor !== 'rgba(0, 0, 0, 0)') found += style.backgroundColor;
      if (style.backgroundColor.startsWith('rgb(')) break;
    }
    return found;
  };
  const samples = new Map();
  for (const element of document.body.querySelectorAll('*')) {
    const text = [...element.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!text || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const key = [style.color, style.fontSize, style.fontWeight, ground(element)].join();
    const inside = element.querySelectorAll('*').length;
    if (!samples.has(key) || inside < samples.get(key)[0]) samples.set(key, [inside, element]);
  }
  for (const [, element] of samples.values()) element.dataset.sample = '';
}"""
# Two runs: all rules but those about colours on the whole page; then these on the samples, of which everything else is
# taken away meanwhile, since axe-core's time for colours goes with the elements that are there. What styles depend on
# the place among siblings is written down before. "region" is off because it is slow and of moderate weight, so that
# what it finds would not count here.
_RUN = """async () => {
  const colours = ['color-contrast', 'link-in-text-block'];
  const off = Object.fromEntries([...colours, 'region'].map(rule => [rule, {enabled: false}]));
  const whole = await axe.run(document, {resultTypes: ['violations'], rules: off});
  const kept = new Map();
  for (const sample of document.querySelectorAll('[data-sample]')) {
    for (let e = sample; e; e = e.parentElement) kept.set(e, '');
    sample.querySelectorAll('*').forEach(e => kept.set(e, ''));
  }
  for (const e of kept.keys()) {
    const style = getComputedStyle(e);
    kept.set(e, ['color', 'background-color'].map(name => `${name}: ${style[name]} !important`).join(';'));
  }
  const before = [...kept.keys()].map(e => [e, e.getAttribute('style')]);
  for (const [e, style] of kept) e.style.cssText += ';' + style;
  const gone = [...document.body.querySelectorAll('*')].filter(e => !kept.has(e) && kept.has(e.parentElement));
  const marks = gone.map(e => { const mark = document.createComment(''); e.replaceWith(mark); return mark; });
  const results = [
    whole,
    await axe.run({include: [['[data-sample]']]}, {resultTypes: ['violations'], runOnly: colours}),
  ];
  marks.forEach((mark, n) => mark.replaceWith(gone[n]));
  for (const [e, style] of before) style === null ? e.removeAttribute('style') : e.setAttribute('style', style);
  return results.flatMap(r => r.violations).flatMap(v => v.nodes.map(n => [v.id, n.impact, n.html.slice(0, 200)]));
}"""


@dataclass(frozen=True)
class Violation:
    """A rule of axe-core that a page breaks, how much that matters, and the beginning of the element."""

    rule: str
    impact: str
    html: str


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> list[Violation]:
    """Return what is seriously or critically wrong with an open page; the page is of no further use."""
    page.evaluate(_PREPARE)
    page.evaluate(_axe())
    found = [Violation(*entry) for entry in page.evaluate(_RUN)]
    return [violation for violation in found if violation.impact in ("serious", "critical")]
