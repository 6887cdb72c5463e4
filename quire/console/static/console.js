// Scripts of the console. Every page works without them.
// @ts-check
"use strict";

/** Make a table or drawing a stop of the tab key while it scrolls sideways. */
const sizes = new ResizeObserver((changes) => changes.forEach((each) => stopIfScrolled(each.target)));
for (const wide of document.querySelectorAll(".wide")) sizes.observe(wide);

/** @param {Element} wide */
function stopIfScrolled(wide) {
  if (wide.scrollWidth <= wide.clientWidth) {
    for (const name of ["tabindex", "role", "aria-label"]) wide.removeAttribute(name);
    return;
  }
  const headings = [...document.querySelectorAll("main :is(h1, h2, h3)")];
  const before = headings.filter((each) => each.compareDocumentPosition(wide) & Node.DOCUMENT_POSITION_FOLLOWING);
  wide.setAttribute("tabindex", "0");
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", `Scrolls sideways: ${before.at(-1)?.textContent ?? ""}`);
}
