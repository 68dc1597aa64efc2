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
