"use strict";
// All text of others is set as text, never as markup.

const END = "</s>";
const $ = (id) => document.getElementById(id);
let about = null;
let answer = null; // what /translate said last
let chosen = 0; // the candidate that is shown
let asked = 0; // number of the newest question, so that a late answer to an earlier one is dropped

async function start() {
  try {
    about = await (await fetch("/about")).json();
  } catch {
    return complain("The server does not answer. Is it still running?");
  }
  $("model").textContent = [about.name, `${about.source} → ${about.target}`].filter(Boolean).join(", ");
  $("text").lang = about.source;
  $("text").maxLength = about.limits.characters;
  $("beam").max = about.limits.beam;
  $("beam").value = about.beam;
  $("alignment").hidden = !about.attention;
  if (!about.attention) $("unknown").querySelector('[value="copy"]').remove();
  for (const id of ["best", "target", "candidates"]) $(id).lang = about.target;
  $("source").lang = about.source;
}

async function ask() {
  if (!$("form").reportValidity()) return;
  const number = ++asked;
  const question = { text: $("text").value, beam: Number($("beam").value), unknown: $("unknown").value };
  $("problem").hidden = true;
  $("busy").textContent = "Searching …";
  $("go").setAttribute("aria-disabled", "true");
  let response = null;
  let content = null;
  try {
    response = await fetch("/translate", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question),
    });
    content = await response.json();
  } catch {
    response = null;
    content = { error: "The server does not answer. Is it still running?" };
  }
  if (number !== asked) return;
  $("busy").textContent = "";
  $("go").removeAttribute("aria-disabled");
  if (response === null || !response.ok) return complain(content.error);
  answer = content;
  chosen = 0;
  show();
}

function complain(message) {
  $("problem").textContent = message;
  $("problem").hidden = false;
}

function show() {
  const candidate = answer.candidates[chosen];
  $("result").hidden = false;
  $("best").textContent = candidate.text;
  const notes = [];
  if (answer.cut > 0) notes.push(`The last ${answer.cut} words were left out: the sentence is too long.`);
  if (!candidate.finished) notes.push("It did not come to an end in the steps allowed.");
  if (candidate.fallback) notes.push("Nothing ended without an unknown word, so they were allowed again.");
  $("note").textContent = notes.join(" ");
  $("note").hidden = notes.length === 0;
  showWords(candidate);
  $("candidates").replaceChildren(...answer.candidates.map(candidateItem));
}

function candidateItem(candidate, number) {
  const button = document.createElement("button");
  const text = document.createElement("span");
  text.textContent = candidate.text || "(nothing)";
  const key = document.createElement("small");
  key.textContent = candidate.key === null ? "" : candidate.key.toFixed(3) + (candidate.finished ? "" : " …");
  key.title = "cost that the candidates are ranked by: lower is better";
  button.type = "button";
  button.append(text, key);
  button.setAttribute("aria-pressed", String(number === chosen));
  button.addEventListener("click", () => {
    chosen = number;
    show();
    $("candidates").children[number].firstChild.focus();
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}

function showWords(candidate) {
  const rows = candidate.alignment === null ? 0 : candidate.alignment.length;
  const target = rows > candidate.tokens.length ? [...candidate.tokens, END] : candidate.tokens;
  fill($("source"), [...answer.source, END], [], (j) => lookFrom(candidate, j, target));
  fill($("target"), target, candidate.unknown, (i) => lookAt(candidate, i, target));
  $("looks").textContent = "";
}

// A row of words. One of them can be reached with the tab key, the others with the arrows.
function fill(place, words, unknown, look) {
  const buttons = words.map((word, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = word;
    button.tabIndex = i === 0 ? 0 : -1;
    button.classList.toggle("end", i === words.length - 1 && word === END);
    button.classList.toggle("unknown", unknown.includes(i));
    button.addEventListener("pointerenter", () => look(i));
    button.addEventListener("focus", () => look(i));
    button.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: words.length - 1 }[event.key];
      if (to === undefined || to < 0 || to >= words.length) return;
      event.preventDefault();
      buttons.forEach((other, j) => { other.tabIndex = j === to ? 0 : -1; });
      buttons[to].focus();
    });
    return button;
  });
  place.replaceChildren(...buttons);
}

function lookAt(candidate, i, target) {
  const weights = candidate.alignment[i];
  paint($("source"), weights);
  paint($("target"), [], i);
  say(target[i], "looks at", weights, [...answer.source, END]);
}

function lookFrom(candidate, j, target) {
  const weights = candidate.alignment.map((row) => row[j]);
  paint($("target"), weights);
  paint($("source"), [], j);
  say([...answer.source, END][j], "is looked at by", weights, target);
}

function paint(place, weights, mark = -1) {
  [...place.children].forEach((word, i) => {
    word.style.setProperty("--weight", String(weights[i] ?? 0));
    word.classList.toggle("chosen", i === mark);
  });
}

function say(word, verb, weights, words) {
  const strongest = weights
    .map((weight, i) => ({ weight, word: words[i] }))
    .filter((one) => one.weight >= 0.05)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, 4)
    .map((one) => `${one.word} (${Math.round(100 * one.weight)} %)`);
  $("looks").textContent = `${word} ${verb} ${strongest.join(", ") || "nothing in particular"}`;
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    ask();
  }
});
start();
