// Scripts of the console. Every page works without them.
// @ts-check
"use strict";

/** Windows in which a table that does not fit shows each row as a block. */
const NARROW = window.matchMedia("(max-width: 48rem)");

/** Characters of a heading and a text above which a block gives them a line of their own. */
const LONG = 20;

const sizes = new ResizeObserver((changes) => {
  // In the next frame, because it changes heights, which the observer sees too.
  requestAnimationFrame(() => changes.forEach((change) => fit(change.target)));
});
for (const wide of document.querySelectorAll(".wide, .report figure")) sizes.observe(wide);

/**
 * Show each row of a table as a block where the window is narrow and the table does not fit; make
 * what scrolls sideways nevertheless a stop of the tab key.
 * @param {Element} wide
 */
function fit(wide) {
  const table = wide.querySelector("table");
  table?.classList.remove("blocks");
  const isOurs = !wide.closest(".report"); // a report has a style of its own
  if (isOurs && table?.tHead && NARROW.matches && wide.scrollWidth > wide.clientWidth) {
    nameCells(table);
    table.classList.add("blocks");
  }
  stopIfScrolled(wide);
}

/**
 * Give each cell of a table the heading of its column, which its style shows beside it.
 * @param {HTMLTableElement} table
 */
function nameCells(table) {
  const names = [...(table.tHead?.rows[0].cells ?? [])].map((heading) => heading.textContent ?? "");
  for (const body of table.tBodies) {
    for (const row of body.rows) {
      [...row.cells].forEach((cell, index) => {
        if (cell.colSpan > 1) return;
        const text = cell.textContent?.trim() ?? "";
        cell.dataset.label = names[index];
        cell.classList.toggle("long", index === 0 || names[index].length + text.length > LONG);
        cell.classList.toggle("empty", text === "");
      });
    }
  }
}

/** @param {Element} wide */
function stopIfScrolled(wide) {
  if (wide.scrollWidth <= wide.clientWidth) {
    for (const name of ["tabindex", "role", "aria-label"]) wide.removeAttribute(name);
    return;
  }
  const headings = [...document.querySelectorAll("main :is(h1, h2, h3)")];
  const before = headings.filter(
    (heading) => heading.compareDocumentPosition(wide) & Node.DOCUMENT_POSITION_FOLLOWING,
  );
  wide.setAttribute("tabindex", "0");
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", `Scrolls sideways: ${before.at(-1)?.textContent ?? ""}`);
}
