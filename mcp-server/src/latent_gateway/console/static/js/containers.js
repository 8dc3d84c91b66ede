// A manifest that is edited: what it would change is shown as one types; a line with a problem is one click away.
import { swap } from "./frame.js";

const PAUSE_MS = 250;
const form = document.querySelector("form[data-plan]");
const plan = form && document.querySelector(form.dataset.plan);
let waiting;

function check() {
  swap(plan, form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
}

form?.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(check, PAUSE_MS);
});

plan?.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-line]");
  const area = document.getElementById("source");
  if (!button || !area) return;
  const lines = area.value.split("\n");
  const from = lines.slice(0, button.dataset.line - 1).join("\n").length + (button.dataset.line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(from, from + (lines[button.dataset.line - 1] ?? "").length);
});
