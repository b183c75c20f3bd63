"use strict";
// Comfort only: the sentences that are shown and every number are on the page without this script.
(() => {
  const make = (tag, name, ...inside) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    node.append(...inside);
    return node;
  };
  const drawn = [...document.querySelectorAll(".sentence")];
  const embedded = globalThis.DecompressionStream && document.getElementById("every-sentence");
  const every = { marks: {}, rows: [] };
  const unpack = async () => {
    const bytes = Uint8Array.from(atob(embedded.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    Object.assign(every, await new Response(stream).json());
  };
  const languages = drawn.length ? [...drawn[0].querySelectorAll(".parallel bdi[lang]")].map((node) => node.lang) : [];
  const line = (name) => drawn.map((one) => one.dataset.line).indexOf(name);

  // Text of a corpus: text only, in its own direction, its invisible characters shown by name.
  const foreign = (text, language) => {
    const node = make("bdi");
    if (language) node.lang = language;
    for (const letter of text) {
      const code = letter.codePointAt(0);
      const control = code < 32 || (code > 126 && code < 160);
      if (!control && !(letter in every.marks)) { node.append(letter); continue; }
      const mark = make("span", "mark", every.marks[letter] || `U+${code.toString(16).toUpperCase().padStart(4, "0")}`);
      mark.title = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
      node.append(mark);
    }
    node.normalize();
    return node;
  };
  const words = (text) => (text ? text.split(" ") : []);
  const draw = ([corpus, number, source, target, reference, weights], template) => {
    const sources = [...words(source), "</s>"], targets = words(target);
    const parallel = make("dl", "parallel");
    const told = [["Source", source, languages[0]], [template.dataset.system, target, languages[1]],
      ["Reference", reference, languages[1]]];
    for (const [name, text, language] of told) parallel.append(make("dt", "", name), make("dd", "", foreign(text, language)));
    parallel.append(make("dt", "", "From"), make("dd", "quiet", foreign(corpus), `, line ${number}`));
    const table = make("table", "heat"), head = table.createTHead().insertRow(), body = table.createTBody();
    table.setAttribute("aria-hidden", "true");
    head.append(make("td"), ...sources.map((word) => make("th", "", make("span", "", foreign(word)))));
    const list = make("ul", "hard");
    list.setAttribute("aria-label", "Hard alignment");
    (targets.length ? weights.split(";") : []).forEach((row, k) => {
      const seen = row.split(" ").map((cell) => cell.split(":").map(Number));
      const cells = sources.map(() => make("td"));
      for (const [place, percent] of seen) if (percent) cells[place].className = `w${percent}`;
      const [strongest, most] = seen[0];
      cells[strongest].className += ` h${most > 50 ? " d" : ""}`;
      body.append(make("tr", "", make("th", "", foreign(targets[k])), ...cells));
      list.append(make("li", "", foreign(targets[k], languages[1]), make("span", "quiet", "←"),
        foreign(sources[strongest], languages[0]), make("span", "", (most / 100).toFixed(2))));
    });
    const scroll = make("div", "scroll", table);
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "img");
    scroll.setAttribute("aria-label", "Soft alignment as a heatmap; the list after it says the same in words.");
    const whole = make("details", "sentence", make("summary", "", foreign(source)), parallel, make("div", "pair", scroll, list));
    whole.dataset.line = `${corpus}:${number}`;
    return whole;
  };

  if (drawn.length > 1) {
    const bar = make("div", "chooser"), label = make("label", "", "Sentence"), select = make("select");
    label.htmlFor = select.id = "choose-sentence";
    const shown = make("div");
    shown.hidden = true;
    drawn[drawn.length - 1].after(shown);
    const named = drawn.map((one) => ({ text: one.querySelector("summary").textContent.trim().replace(/\s+/g, " "), one }));
    const choice = (row) => ({ text: `${foreign(row[2]).textContent} (${row[0]}, line ${row[1]})`, row, one: drawn[line(`${row[0]}:${row[1]}`)],
      sought: `${row[2]}\n${row[3]}\n${row[4]}`.toLowerCase() });
    let choices = named;
    const offer = (list) => {
      choices = list;
      select.replaceChildren(...list.slice(0, 200).map(({ text }, k) =>
        new Option(text.length > 90 ? `${text.slice(0, 89)}…` : text, k)));
    };
    const show = (k) => {
      const count = select.options.length;
      if (!count) return;
      select.selectedIndex = (k + count) % count;
      const { one, row } = choices[select.selectedIndex];
      const chosen = one || draw(row, drawn[0]);
      shown.replaceChildren(...(one ? [] : [chosen]));
      shown.hidden = Boolean(one);
      drawn.forEach((other) => { other.hidden = other !== one; });
      chosen.open = true;
      [chosen, ...drawn].forEach((sentence) => sentence.classList.add("chosen"));
    };
    const step = (text, name, by) => {
      const button = make("button", "", text);
      button.type = "button";
      button.setAttribute("aria-label", name);
      button.addEventListener("click", () => show(select.selectedIndex + by));
      return button;
    };
    select.addEventListener("change", () => show(select.selectedIndex));
    bar.append(label, select, step("←", "Previous sentence", -1), step("→", "Next sentence", 1));
    if (embedded) {
      const find = make("input"), said = make("output", "quiet small");
      let others;
      find.type = "search";
      find.placeholder = "Words, or a line";
      find.setAttribute("aria-label", "Find a test sentence by its words or its line");
      document.getElementById("find-hint").hidden = false;
      find.addEventListener("input", async () => {
        others = others || unpack().then(() => every.rows.map(choice)); // once, and not before it is asked for
        const all = await others;
        const asked = words(find.value.trim().toLowerCase().replace(/\s+/g, " "));
        const found = all.filter(({ sought, row }) =>
          asked.every((word) => (/^\d+$/.test(word) ? String(row[1]) === word : sought.includes(word))));
        offer(asked.length ? found : named);
        said.textContent = asked.length ? `${found.length} found${found.length > 200 ? ", the first 200 offered" : ""}` : "";
        show(0);
      });
      bar.append(find, said);
    }
    drawn[0].before(bar);
    offer(named);
    show(0);
  }

  const tip = make("div", "tip");
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const cell = event.target.closest ? event.target.closest(".heat td") : null;
    tip.hidden = !cell;
    if (!cell) return;
    const source = cell.closest("table").tHead.rows[0].cells[cell.cellIndex];
    const weight = /\bw(\d+)/.exec(cell.className);
    tip.textContent = `${cell.parentNode.cells[0].textContent} ← ${source.textContent}  ${weight ? weight[1] : 0} %`;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.max(event.clientY - tip.offsetHeight - 12, 4)}px`;
  });

  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest ? event.target.closest("a.ev") : null;
    if (link && link.hash === location.hash) reveal();
  });
  reveal();
})();
