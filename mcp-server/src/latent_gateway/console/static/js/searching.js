// Search as one types, keys through the hits, the panel beside them. The page works without.
import { addressOf, swap } from "./frame.js";

const form = document.getElementById("search");
const field = form?.elements.q;
const panel = document.getElementById("panel");
const answer = document.getElementById("answer");
const typing = form?.elements.typing;

// While one types, the last word is a beginning of one; with Enter it is whole. The address says which.
field?.addEventListener("input", () => (typing.value = "1"));
form?.addEventListener("submit", () => (typing.value = ""), true);
for (const other of form?.querySelectorAll("input:not(#q), select") ?? []) {
  other.addEventListener("input", () => (typing.value = ""), true);
}

// The facets of an answer come after it: at once, or when one stops typing. The focus stays, and what was folded.
const narrow = document.getElementById("narrow");
const STOPPED_MS = 400;
let focused = "";
let folded = matchMedia("(max-width: 60rem)").matches;
let counting = 0;
function settle() {
  const facets = document.getElementById("facets");
  if (!facets) return;
  facets.open = !folded;
  facets.addEventListener("toggle", () => (folded = !facets.open));
}
settle();
narrow?.addEventListener("change", (event) => {
  if (event.target.form !== form) return;
  focused = event.target.id;
  typing.value = "";
  form.requestSubmit();
});
answer?.addEventListener("latent:swapped", () => {
  clearTimeout(counting);
  if (answer.querySelector(":scope > [role=alert]")) return;
  const address = addressOf(form).replace("/search", "/search/facets");
  counting = setTimeout(() => swap(narrow, address), typing.value ? STOPPED_MS : 0);
});
narrow?.addEventListener("latent:swapped", () => {
  settle();
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  focused = "";
});

// The panel
let opener = null;
function close() {
  panel.replaceChildren();
  opener?.focus();
  opener = null;
}
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) close();
  const link = event.target.closest('a[data-swap="#panel"]');
  if (link) opener = link.closest(".hit")?.querySelector("a.open") ?? link;
});
panel?.addEventListener("latent:swapped", () => {
  panel.querySelector("[data-close]")?.removeAttribute("hidden");
  panel.scrollTop = 0;
});

// Keys: j, k and arrows through the hits, Enter opens (it is a link), o shows beside, Esc closes.
const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape" && panel?.childElementCount) {
    event.preventDefault();
    close();
    return;
  }
  const control = event.target.closest?.("input, textarea, select, summary, pre, blockquote, [contenteditable]");
  const fromField = event.target === field && event.key === "ArrowDown";
  if (control && !fromField) return;
  const hits = [...(answer?.querySelectorAll(".hit a.open") ?? [])].filter((one) => one.checkVisibility());
  const at = hits.indexOf(document.activeElement?.closest?.(".hit")?.querySelector("a.open"));
  if (event.key in STEPS && hits.length) {
    if (at < 0 && !fromField && event.key.startsWith("Arrow")) return; // the page scrolls
    event.preventDefault();
    const next = at + STEPS[event.key];
    if (next < 0) field.focus();
    else hits[Math.min(next, hits.length - 1)].focus();
    if (panel.childElementCount && next >= 0) beside(document.activeElement);
  }
  if (event.key === "o" && at >= 0) beside(hits[at]);
});
function beside(open) {
  const link = open.closest(".hit")?.querySelector("a.beside");
  if (!link) return;
  opener = open;
  swap(panel, link.href);
}
