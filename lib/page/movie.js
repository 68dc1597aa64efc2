(function () {
  const movie = document.getElementById("LABEL");
  if (!movie || movie.dataset.ready) return;
  movie.dataset.ready = "yes";
  const data = JSON.parse(movie.querySelector('script[type="application/json"]').textContent);
  const clouds = [...movie.querySelectorAll(".pictures > svg > svg")].map(s => [...s.querySelectorAll("circle")]);
  const images = movie.querySelectorAll(".pictures > img");
  const slider = movie.querySelector("input"), button = movie.querySelector("button");
  const output = movie.querySelector("output"), pictures = movie.querySelector(".pictures");
  let timer = null;
  function draw(k) {
    clouds.forEach((cloud, p) => cloud.forEach((dot, i) => {
      dot.setAttribute("cx", data.frames[p][k][2 * i]);
      dot.setAttribute("cy", data.frames[p][k][2 * i + 1]);
    }));
    images.forEach((image, i) => { image.hidden = i !== k; });
    slider.value = k;
    output.textContent = data.symbol + " = " + data.times[k];
    slider.setAttribute("aria-valuetext", output.textContent);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = "\u25B6";
    button.setAttribute("aria-label", "Play");
  }
  slider.addEventListener("input", () => { stop(); draw(Number(slider.value)); });
  // JupyterLab gives the focus to a cell after a click, and the arrow keys too.
  slider.addEventListener("click", () => setTimeout(() => slider.focus()));
  slider.addEventListener("keydown", event => event.stopPropagation());
  const last = data.times.length - 1, printed = [...new Set([0, last >> 1, last])];
  addEventListener("beforeprint", () => {
    const now = Number(slider.value);
    movie.classList.add("printed");
    printed.forEach(k => {
      if (images.length) return images[k].classList.add("still");
      draw(k);
      const still = pictures.cloneNode(true);
      still.classList.add("still");
      still.dataset.when = output.textContent;
      pictures.before(still);
    });
    draw(now);
    if (images.length) output.textContent = data.symbol + " = " + printed.map(k => data.times[k]).join("; ");
    else output.textContent = "";
  });
  addEventListener("afterprint", () => {
    movie.classList.remove("printed");
    movie.querySelectorAll(".pictures.still").forEach(still => still.remove());
    draw(Number(slider.value));
  });
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) >= data.times.length - 1) draw(0);
    button.textContent = "\u275A\u275A";
    button.setAttribute("aria-label", "Pause");
    timer = setInterval(() => {
      const next = Number(slider.value) + 1;
      if (next >= data.times.length) return stop();
      draw(next);
    }, data.pause);
  });
})();
