// The opening page's movie plays by itself, a few times and only for readers who do not mind movement.
document.addEventListener("DOMContentLoaded", () => {
  const movie = document.querySelector(".hero .movie");
  if (!movie || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const button = movie.querySelector("button");
  movie.querySelector("output").setAttribute("aria-live", "off");
  let rounds = 5;
  const play = () => {
    if (rounds-- > 0) {
      if (button.getAttribute("aria-label") === "Play") button.click();
      return;
    }
    clearInterval(timer);
    const range = movie.querySelector("input"); // and rests where it began
    range.value = range.defaultValue;
    range.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const timer = setInterval(play, 5500);
  for (const event of ["click", "input"]) {
    movie.addEventListener(event, made => made.isTrusted && clearInterval(timer));
  }
  play();
});

// Formulas that are a little wider than their box shrink to its width; those that would get too small scroll, and what
// scrolls can be reached and moved with the keyboard.
const SMALLEST = 0.75;
const fitWideFormulas = () => {
  const boxes = [...document.querySelectorAll(".bd-article :is(span.math, div.math mjx-container)")];
  boxes.forEach(box => { box.style.fontSize = ""; });
  const fits = boxes.map(box => box.clientWidth / (box.scrollWidth - 4));
  boxes.forEach((box, place) => {
    const wide = fits[place] < SMALLEST;
    if (!wide && fits[place] < 1) box.style.fontSize = `${Math.floor(100 * fits[place] - 2)}%`;
    box.classList.toggle("scrolls", wide);
    if (wide) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
};
window.addEventListener("load", async () => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  fitWideFormulas();
  window.addEventListener("resize", fitWideFormulas);
});

// The theme asks what scrolls when the window changes; what unfolds has to be asked, too.
const askAgain = () => window.dispatchEvent(new Event("resize"));
document.addEventListener("toggle", askAgain, true);
document.addEventListener("click", made => made.target.closest(".toggle-button") && askAgain());

// The theme's triangles beside the entries of the contents have no name.
document.addEventListener("DOMContentLoaded", () => {
  for (const triangle of document.querySelectorAll("nav details > summary")) {
    const entry = triangle.closest("li").querySelector("a");
    triangle.setAttribute("aria-label", `Pages under ${entry.textContent.trim()}`);
  }
});

// Nothing can be unfolded on paper, and its ground is white: print everything, in light colours, then fold again.
const root = document.documentElement;
let foldedAgain = [];
window.addEventListener("beforeprint", () => {
  const folded = [...document.querySelectorAll(".bd-article details:not([open])")];
  const theme = root.dataset.theme;
  folded.forEach(box => { box.open = true; });
  root.dataset.theme = "light";
  foldedAgain = [() => folded.forEach(box => { box.open = false; }), () => { root.dataset.theme = theme; }];
});
window.addEventListener("afterprint", () => foldedAgain.splice(0).forEach(undo => undo()));

// A link to what is folded opens it, in browsers that do not so by themselves.
const openTarget = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let box = target?.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  if (target?.closest("details")) target.scrollIntoView();
};
window.addEventListener("hashchange", openTarget);
document.addEventListener("DOMContentLoaded", openTarget);

// Words of a search are marked on the page it led to. Sphinx would do it, were its search not loaded on every page.
document.addEventListener("DOMContentLoaded", () => {
  if (document.querySelector("#search-results")) return;
  const words = (localStorage.getItem("sphinx_highlight_terms") || "").toLowerCase().split(/\s+/).filter(word => word);
  localStorage.removeItem("sphinx_highlight_terms");
  const texts = document.querySelectorAll(".bd-article :is(p, li, dt, td, figcaption, h1, h2, h3)");
  for (const word of words) texts.forEach(text => _highlightText(text, word, "highlighted"));
  const marks = [...document.querySelectorAll(".bd-article span.highlighted")];
  if (!location.hash) marks.find(mark => mark.checkVisibility())?.scrollIntoView({ block: "center" });
});

// What is copied holds formulas as TeX: MathJax draws pictures of them, which a clipboard of text cannot hold.
document.addEventListener("copy", event => {
  const selection = document.getSelection();
  if (selection.isCollapsed || !window.MathJax?.startup?.document) return;
  const range = selection.getRangeAt(0);
  const formulas = [...MathJax.startup.document.math].filter(item => range.intersectsNode(item.typesetRoot));
  if (formulas.length === 0) return;
  const chosen = document.createElement("div");
  formulas.forEach(item => { item.typesetRoot.dataset.tex = item.display ? `$$${item.math}$$` : `$${item.math}$`; });
  chosen.append(range.cloneContents());
  if (!chosen.querySelector("[data-tex]")) chosen.textContent = formulas[0].typesetRoot.dataset.tex;  // within one
  for (const drawn of chosen.querySelectorAll("[data-tex]")) drawn.replaceWith(drawn.dataset.tex);
  document.body.append(chosen);  // only what is shown has lines and paragraphs
  event.clipboardData.setData("text/plain", chosen.innerText);
  event.clipboardData.setData("text/html", chosen.innerHTML);
  chosen.remove();
  event.preventDefault();
});
