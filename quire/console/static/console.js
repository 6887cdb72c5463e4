// Scripts of the console. Every page works without them.
// @ts-check
"use strict";

/** Send a form when one of its boxes is ticked, instead of by its button. */
for (const form of document.querySelectorAll("form[data-send-on-change]")) {
  form.addEventListener("change", () => /** @type {HTMLFormElement} */ (form).requestSubmit());
}
