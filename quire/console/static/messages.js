// New messages of a partition, added to the page's table. The page works without it.
// @ts-check
"use strict";

const ROWS_MAX = 200;

/**
 * Add a row with these texts above all others.
 * @param {HTMLTableSectionElement} body
 * @param {string[]} texts
 */
function addRow(body, texts) {
  const names = /** @type {HTMLTableElement} */ (body.parentElement).tHead?.rows[0].cells ?? [];
  const row = body.insertRow(0);
  texts.forEach((text, index) => {
    const cell = row.insertCell();
    cell.dataset.label = names[index]?.textContent ?? "";
    cell.classList.add("long");
    const shown = document.createElement("pre");
    shown.className = "data";
    shown.textContent = text;
    cell.append(shown);
  });
  while (body.rows.length > ROWS_MAX) {
    body.deleteRow(-1);
  }
}

/** @param {HTMLElement} live */
function offer(live) {
  const address = live.dataset.live ?? "";
  const button = document.createElement("button");
  const state = document.createElement("span");
  const table = /** @type {HTMLTableElement} */ (live.querySelector("table"));
  const body = table.tBodies[0];
  /** @type {EventSource | null} */
  let source = null;
  let skipped = 0;
  button.type = "button";
  state.className = "quiet";
  state.setAttribute("role", "status");

  /** @param {string} text */
  function stop(text) {
    source?.close();
    source = null;
    button.textContent = "Show new messages as they come";
    state.textContent = text;
  }

  function start() {
    source = new EventSource(address);
    button.textContent = "Pause";
    state.textContent = "Waiting for new messages.";
    table.hidden = false;
    source.addEventListener("record", (event) => {
      const record = JSON.parse(event.data);
      addRow(body, [record.offset.toLocaleString("en"), record.time, record.key, record.value]);
    });
    source.addEventListener("skipped", (event) => {
      skipped += JSON.parse(event.data);
      state.textContent = `${skipped} messages came too fast and are not shown.`;
    });
    source.addEventListener("problem", (event) => stop(JSON.parse(event.data)));
    source.onerror = () => stop("The connection ended.");
  }

  button.addEventListener("click", () => (source === null ? start() : stop("Paused.")));
  live.prepend(button, " ", state);
  stop("");
  live.hidden = false;
}

for (const live of document.querySelectorAll("[data-live]")) {
  offer(/** @type {HTMLElement} */ (live));
}
