// The opening page's movie plays by itself, a few times and only for readers who do not mind movement.
document.addEventListener("DOMContentLoaded", () => {
  const movie = document.querySelector(".hero .movie");
  if (!movie || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const button = movie.querySelector("button");
  movie.querySelector("output").setAttribute("aria-live", "off");
  let rounds = 5;
  const play = () => {
    if (button.getAttribute("aria-label") === "Play") button.click();
    if (--rounds === 0) clearInterval(timer);
  };
  const timer = setInterval(play, 5500);
  for (const event of ["click", "input"]) {
    movie.addEventListener(event, made => made.isTrusted && clearInterval(timer));
  }
  play();
});

// Formulas that are wider than the page scroll, and what scrolls can be reached and moved with the keyboard.
const markWideFormulas = () => {
  const boxes = [...document.querySelectorAll(".bd-article :is(span.math, div.math mjx-container)")];
  const wide = boxes.map(box => box.scrollWidth > box.clientWidth + 4);
  boxes.forEach((box, place) => {
    box.classList.toggle("scrolls", wide[place]);
    if (wide[place]) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
};
window.addEventListener("load", async () => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  markWideFormulas();
  window.addEventListener("resize", markWideFormulas);
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
