// Capsules: Python under a theorem that a reader may change, break and run. Nothing is fetched before the first click.
(() => {
  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const SECONDS = 20, LONGEST = 20_000;

  // Runs in a frame without an origin, which may fetch nothing; the interpreter works in a worker of that frame.
  function inside() {
    let address, worker;
    const begin = () => {
      worker = new Worker(address);
      worker.onmessage = event => event.target === worker && parent.postMessage(event.data, "*");
      worker.onerror = event => parent.postMessage({ done: { rows: [], error: `The interpreter failed: ${event.message}`, line: 0 } }, "*");
    };
    onmessage = event => {
      if (event.source !== parent) return;
      if (event.data.engine) address = URL.createObjectURL(new Blob([event.data.engine]));
      if (event.data.stop) worker.terminate();
      if (event.data.engine || event.data.stop) begin();
      if (event.data.source !== undefined) worker.postMessage(event.data);
    };
    parent.postMessage({ open: true }, "*");
  }
  const RULES = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob:; worker-src blob:";
  const FRAME = `<meta http-equiv="Content-Security-Policy" content="${RULES}"><script>(${inside})()</` + "script>";

  let frame, started, hear = () => {}, end = () => {};
  const start = () => started ??= new Promise((resolve, reject) => {
    const script = make("script", { src: `${HERE}capsule-python.js` });
    script.onerror = () => { started = undefined; reject(new Error("Python could not be loaded.")); };
    script.onload = () => {
      frame = make("iframe", { sandbox: "allow-scripts", hidden: true, title: "Python", srcdoc: FRAME });
      addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return;
        if (event.data.open && window.bookPython) {
          frame.contentWindow.postMessage({ engine: window.bookPython }, "*");
          delete window.bookPython;
        } else if (event.data.ready) resolve();
        else hear(event.data);
      });
      document.body.append(frame);
    };
    document.head.append(script);
  });
  const failed = error => ({ rows: [], error, line: 0 });
  const run = async (source, write) => {
    await start();
    return new Promise(resolve => {
      end = result => { clearTimeout(timer); hear = end = () => {}; resolve(result); };
      const timer = setTimeout(() => stop(`Stopped after ${SECONDS} seconds.`), 1000 * SECONDS);
      hear = data => data.done ? end(data.done) : data.out !== undefined && write(String(data.out));
      frame.contentWindow.postMessage({ source }, "*");
    });
  };
  const stop = why => { frame?.contentWindow.postMessage({ stop: true }, "*"); end(failed(why)); };

  const make = (name, settings, ...inner) => {
    const made = Object.assign(document.createElement(name), settings);
    made.append(...inner);
    return made;
  };
  const labelled = (element, label) => { element.setAttribute("aria-label", label); return element; };

  // The code in a link: compressed, in letters that an address may have.
  const through = async (data, filter) => new Response(new Blob([data]).stream().pipeThrough(filter)).arrayBuffer();
  const pack = async text => btoa(String.fromCharCode(...new Uint8Array(await through(text, new CompressionStream("deflate-raw")))))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const unpack = async text => {
    const bytes = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), letter => letter.charCodeAt(0));
    return new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw")));
  };

  const say = text => {
    let region = document.querySelector("#capsule-news");
    if (!region) {
      region = make("div", { id: "capsule-news", className: "visually-hidden", role: "status" });
      document.querySelector("article").append(region);
    }
    region.textContent = text;
  };
  const assign = (code, name, value) => code.replace(new RegExp(`^${name} = .*$`, "m"), () => `${name} = ${value}`);

  const enliven = box => {
    const name = box.dataset.capsule, pre = box.querySelector("pre");
    const original = pre.textContent.trimEnd() + "\n";
    const variants = [...original.matchAll(/^# (break|try): (\w+) = (.*?)  # (.+)$/gm)]
      .map(([, kind, variable, value, why]) => ({ kind, why, code: assign(original, variable, value) }));
    const editor = make("textarea", { value: original, spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off" });
    labelled(editor, `Python code of the capsule ${name}`).rows = original.split("\n").length;
    const button = (text, action) => make("button", { type: "button", textContent: text, onclick: action });
    const state = make("span", { className: "capsule-state" });
    const mark = make("p", { className: "capsule-mark" });
    const panel = make("div", { className: "capsule-panel" });
    const printed = make("pre", { className: "capsule-out", hidden: true });
    const after = make("p", { className: "capsule-after" });

    const whose = () => {
      const variant = variants.find(one => one.code === editor.value);
      box.classList.toggle("capsule-edited", editor.value !== original && !variant);
      if (editor.value === original) return "The book's own capsule";
      return variant ? `The book's own variant: ${variant.why}` : "Edited: not the book's code, and not the book's panel";
    };
    const clear = (words = "") => {
      panel.replaceChildren();
      after.replaceChildren();
      delete panel.dataset.holds;
      printed.hidden = true;
      printed.textContent = "";
      state.textContent = words;
      mark.textContent = whose();
    };
    const show = result => {
      if (result.error) {
        const words = result.line ? `Line ${result.line}: ${result.error}` : result.error;
        panel.append(make("p", { className: "capsule-error", textContent: words }));
        if (result.line) {
          const lines = editor.value.split("\n");
          const from = lines.slice(0, result.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
          editor.focus({ preventScroll: true });
          editor.setSelectionRange(from, from + lines[result.line - 1].length);
        }
        return words;
      }
      const red = result.rows.filter(row => !row[4]);
      const rows = result.rows.map(([label, value, sign, bound, holds]) => make("tr", { className: holds ? "holds" : "fails" },
        make("td", { textContent: holds ? "holds" : "fails" }), make("th", { scope: "row", textContent: label }),
        make("td", { textContent: value }), make("td", { textContent: `${sign} ${bound}` })));
      const head = ["", "line", "value", "bound"].map(text => make(text ? "th" : "td", text ? { scope: "col", textContent: text } : {}));
      panel.append(make("table", {}, make("caption", { textContent: whose() }),
        make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
      panel.dataset.holds = red.length === 0;
      if (red.length && box.dataset.issues) {
        const form = async event => {
          event.preventDefault();
          const fields = { template: "broken_theorem.yml", capsule: name, red: red.map(row => row[0]).join("; "), link: await address() };
          open(`${box.dataset.issues}/issues/new?${new URLSearchParams(fields)}`, "_blank", "noopener");
        };
        after.append(make("a", { href: `${box.dataset.issues}/issues/new?template=broken_theorem.yml`, onclick: form,
          textContent: "Tell others what you broke" }));
      }
      return red.length ? `${red.length} of ${rows.length} lines fail: ${red.map(row => row[0]).join("; ")}` : `All ${rows.length} lines hold`;
    };
    const go = async () => {
      end(failed("Stopped: another capsule runs."));
      clear("Python starts …");
      runs.disabled = true;
      stops.disabled = false;
      let words;
      try {
        await start();
        state.textContent = "Running …";
        const begun = performance.now();
        const result = await run(editor.value, text => {
          printed.hidden = false;
          printed.textContent = (printed.textContent + text).slice(0, LONGEST);
        });
        words = `${show(result)} (${((performance.now() - begun) / 1000).toFixed(2)} s)`;
      } catch (error) {
        words = error.message;
      }
      state.textContent = words;
      say(words);
      runs.disabled = false;
      stops.disabled = true;
    };
    const put = (code, words) => { editor.value = code; clear(words); };
    const address = async () => {
      const page = new URL(box.dataset.page, location.protocol === "file:" && box.dataset.home ? box.dataset.home : location.href);
      return `${page.href.split("#")[0]}#try=${name}.${await pack(editor.value)}`;
    };
    const link = async () => {
      const field = labelled(make("input", { readOnly: true, value: await address() }), "Link to this attempt");
      after.replaceChildren(field);
      field.select();
      let words = "The link is selected: copy it.";
      try { await navigator.clipboard.writeText(field.value); words = "The link is copied."; } catch { /* it is selected */ }
      say(state.textContent = words);
    };
    const runs = button("Run", go), stops = button("Stop", () => stop("Stopped."));
    stops.disabled = true;
    const choices = variants.map(({ kind, why, code }) => button(`${kind === "break" ? "Break" : "Try"}: ${why}`, () => { put(code); go(); }));
    editor.addEventListener("input", () => clear());
    editor.addEventListener("keydown", event => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!runs.disabled) go();
    });
    addEventListener("beforeprint", () => { if (editor.value !== pre.textContent) pre.textContent = editor.value; });
    [...box.children].find(child => child.contains(pre)).before(make("div", { className: "capsule-live" },
      make("div", { className: "capsule-bar" }, runs, stops, button("Reset", () => put(original)), button("Link", link), state),
      make("div", { className: "capsule-bar" }, ...choices), mark, panel, printed, after, editor));
    box.classList.add("capsule-awake");
    clear();
    return { put, go, original };
  };

  const awake = new Map();
  const wake = box => awake.get(box) ?? awake.set(box, enliven(box)).get(box);
  const open_ = box => { box.open = true; return wake(box); };

  // What a reader brings, as a Python literal; a string that is thrown says what is wrong with it.
  const numbers = text => text.trim().split(/[\s,;]+/).filter(part => part);
  const lines = text => text.split(/[\n/]/).map(numbers).filter(line => line.length);
  const READ = {
    table: text => {
      const rows = lines(text);
      if (rows.length < 2 || rows.length > 16 || rows.some(row => row.length !== rows.length)) throw "A table has as many rows as columns, two to sixteen.";
      if (!rows.flat().every(entry => /^[\p{L}\p{N}_.^-]+$/u.test(entry))) throw "Names are made of letters and digits.";
      return JSON.stringify(rows.map(row => row.join(" ")).join(" / "));
    },
    permutations: text => {
      const rows = lines(text), n = rows[0]?.length;
      if (!(n > 1 && n <= 12) || rows.some(row => row.length !== n)) throw "Every line has the same two to twelve numbers.";
      if (!rows.flat().every(entry => /^\d+$/.test(entry) && +entry < n)) throw `The numbers are 0 to ${n - 1}: where 0, 1, 2, … go.`;
      return `[${rows.map(row => `(${row.map(Number).join(", ")})`).join(", ")}]`;
    },
    signal: text => {
      const values = numbers(text);
      if (values.length < 2 || values.length > 12 || !values.every(entry => /^-?\d+(\.\d+)?$/.test(entry))) throw "A signal is two to twelve numbers.";
      if (values.every(entry => Number(entry) === 0)) throw "A signal that is zero everywhere has nothing to show.";
      return `[${values.map(Number).join(", ")}]`;
    },
  };
  const own = place => {
    const takes = [...document.querySelectorAll("details[data-own]")].flatMap(box => box.dataset.own.split(";").map(one => [box, ...one.split(" ")]));
    const words = ([box, kind]) => `${kind}: ${box.querySelector("summary").textContent.replace(/^.*?: /, "")}`;
    const choice = labelled(make("select", {}, ...takes.map((one, i) => make("option", { value: i, textContent: words(one) }))), "Claim");
    const text = labelled(make("textarea", { rows: 6, spellcheck: false, value: place.dataset.table }), "Your table, permutations or signal");
    const problem = make("span", { className: "capsule-state" });
    choice.onchange = () => { text.value = place.dataset[takes[choice.value][1]]; problem.textContent = ""; };
    const go = () => {
      const [box, kind, variable] = takes[choice.value];
      try {
        const code = assign(wake(box).original, variable, READ[kind](text.value));
        problem.textContent = "";
        open_(box).put(code);
        box.scrollIntoView();
        wake(box).go();
      } catch (error) {
        if (typeof error !== "string") throw error;
        say(problem.textContent = error);
      }
    };
    place.replaceChildren(choice, text, make("div", { className: "capsule-bar" }, make("button", { type: "button", textContent: "Run", onclick: go }), problem));
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const box of document.querySelectorAll("details[data-capsule]")) {
      box.addEventListener("toggle", () => box.open && wake(box));
      box.querySelector("summary").addEventListener("click", event => event.isTrusted && start().catch(() => {}));
    }
    document.querySelectorAll("[data-signal]").forEach(own);
    follow();
  });
  const follow = async () => {
    const asked = /^#try=(\w+)\.([\w-]+)$/.exec(location.hash);
    const box = asked && document.querySelector(`details[data-capsule="${asked[1]}"]`);
    if (!box) return;
    try {
      const code = (await unpack(asked[2])).slice(0, LONGEST);
      const words = "This code came with a link and has not run: read it, then press Run.";
      open_(box).put(code, words);
      say(words);
      box.scrollIntoView();
    } catch { say("The link is damaged: the capsules are as the book has them."); }
  };
  addEventListener("hashchange", follow);
  window.bookCapsules = { run, stop };
})();
