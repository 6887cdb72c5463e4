// Scripts of a ledger's page: walk in the map by arrow keys, and follow new entries.
// The page works without them.
// @ts-check
"use strict";

const ENTRIES_MAX = 200;

/** @type {Record<string, [number, number]>} */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Make the cells of a map one stop of the tab key; arrow keys go to the next cell in a direction.
 * @param {Element} map
 */
function walkByArrows(map) {
  const cells = [...map.querySelectorAll("a[data-row]")];
  /** @param {Element} cell */
  const at = (cell) => [Number(cell.getAttribute("data-row")), Number(cell.getAttribute("data-column"))];
  cells.forEach((cell, index) => cell.setAttribute("tabindex", index ? "-1" : "0"));
  map.addEventListener("keydown", (event) => {
    const key = /** @type {KeyboardEvent} */ (event).key;
    const current = /** @type {Element} */ (event.target).closest("a[data-row]");
    if (!current || !(key in STEPS)) return;
    event.preventDefault();
    const [row, column] = at(current);
    const [down, right] = STEPS[key];
    let best = null;
    let nearest = Infinity;
    for (const cell of cells) {
      const [otherRow, otherColumn] = at(cell);
      const along = (otherRow - row) * down + (otherColumn - column) * right;
      const aside = down ? Math.abs(otherColumn - column) : Math.abs(otherRow - row);
      const distance = along + aside * 1000;
      if (along > 0 && distance < nearest) [best, nearest] = [cell, distance];
    }
    if (!best) return;
    current.setAttribute("tabindex", "-1");
    best.setAttribute("tabindex", "0");
    /** @type {SVGAElement} */ (best).focus();
  });
}

/**
 * Show the entries that a stream of events brings, until it ends or is paused.
 * @param {HTMLElement} section
 */
function follow(section) {
  const button = /** @type {HTMLButtonElement} */ (section.querySelector("[data-tail-button]"));
  const state = /** @type {HTMLElement} */ (section.querySelector("[data-tail-state]"));
  const list = /** @type {HTMLElement} */ (section.querySelector("[data-tail-list]"));
  /** @type {EventSource | null} */
  let source = null;
  let last = "";

  /** @param {string} text */
  const add = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    list.append(item);
    while (list.childElementCount > ENTRIES_MAX) list.firstElementChild?.remove();
    list.scrollTop = list.scrollHeight;
  };
  /** @param {string} text @param {string} next */
  const stop = (text, next) => {
    source?.close();
    source = null;
    state.textContent = text;
    button.textContent = next;
  };
  const start = () => {
    const after = last ? `&after=${last}` : "";
    source = new EventSource(`${section.dataset.tail}${after}`);
    source.addEventListener("entries", (event) => {
      const found = JSON.parse(event.data);
      last = event.lastEventId;
      if (found.skipped) add(`… skipped ${found.skipped} entries`);
      for (const each of found.entries) {
        add(`${each.id}: ${each.text}${each.cut ? ` … (${each.length} bytes)` : ""}`);
      }
    });
    source.addEventListener("end", (event) => stop(event.data, "Follow"));
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) stop("The console does not answer.", "Follow");
    });
    state.textContent = "Following.";
    button.textContent = "Pause";
  };
  button.addEventListener("click", () => (source ? stop("Paused.", "Continue") : start()));
  section.hidden = false;
  for (const each of document.querySelectorAll("[data-without-script]")) each.remove();
}

document.querySelectorAll("svg[data-walk]").forEach(walkByArrows);
document.querySelectorAll("[data-tail]").forEach((each) => follow(/** @type {HTMLElement} */ (each)));
