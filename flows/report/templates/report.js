"use strict";
// Comfort only: every sentence and number is on the page without this script.
(() => {
  const sentences = [...document.querySelectorAll(".sentence")];
  if (sentences.length > 1) {
    const bar = document.createElement("div");
    const label = document.createElement("label");
    const select = document.createElement("select");
    label.htmlFor = select.id = "choose-sentence";
    label.textContent = "Sentence";
    sentences.forEach((sentence, k) => {
      const text = sentence.querySelector("summary").textContent.trim().replace(/\s+/g, " ");
      select.append(new Option(text.length > 90 ? text.slice(0, 89) + "…" : text, k));
    });
    const show = (k) => {
      select.selectedIndex = (k + sentences.length) % sentences.length;
      sentences.forEach((sentence, j) => {
        sentence.hidden = j !== select.selectedIndex;
        sentence.open = true;
        sentence.classList.add("chosen");
      });
    };
    const step = (text, name, by) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", name);
      button.addEventListener("click", () => show(select.selectedIndex + by));
      return button;
    };
    select.addEventListener("change", () => show(select.selectedIndex));
    bar.className = "chooser";
    bar.append(label, select, step("←", "Previous sentence", -1), step("→", "Next sentence", 1));
    sentences[0].before(bar);
    show(0);
  }

  const tip = document.createElement("div");
  tip.className = "tip";
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
