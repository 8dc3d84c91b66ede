// What every page has: parts that are replaced in place, live parts, copying, one shortcut. All of it works without.

export const csrf = document.querySelector("meta[name=csrf-token]")?.content ?? "";
export const LOST = "The connection to the server was lost. Check that it runs, then try again.";

export function alertOf(message) {
  const shown = document.createElement("p");
  shown.className = "alert";
  shown.setAttribute("role", "alert");
  shown.textContent = message;
  return shown;
}

// Replacing parts: <form data-swap="#id"> or <a data-swap="#id">. The answer is HTML of our own server, escaped there; the
// content security policy blocks scripts in it. A newer request of the same target ends the former one.
const running = new Map();

export async function swap(target, address, options = {}) {
  running.get(target)?.abort();
  const control = new AbortController();
  running.set(target, control);
  target.setAttribute("aria-busy", "true");
  try {
    const headers = { "X-Part": "1", "X-CSRF-Token": csrf };
    const answer = await fetch(address, { ...options, headers, signal: control.signal });
    if (answer.status === 401) {
      location.assign("/login");
      return;
    }
    const text = await answer.text();
    if (answer.redirected && !options.method) location.assign(answer.url);
    target.innerHTML = text;
  } catch (error) {
    if (error.name === "AbortError") return;
    target.replaceChildren(alertOf(LOST));
  }
  if (running.get(target) !== control) return;
  running.delete(target);
  target.removeAttribute("aria-busy");
  target.dispatchEvent(new CustomEvent("latent:swapped", { bubbles: true, detail: { address } }));
}

// The address of a GET form: empty fields are not part of it.
export function addressOf(form) {
  const given = [...new FormData(form)].filter(([, value]) => value !== "");
  const query = new URLSearchParams(given).toString();
  return form.getAttribute("action") + (query ? `?${query}` : "");
}

// The address of what is shown. Back and forward load the page anew; a jump within the page does not.
let shown = location.pathname + location.search;
export function show(address, push = true) {
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  shown = location.pathname + location.search;
}
addEventListener("popstate", () => {
  if (location.pathname + location.search !== shown) location.reload();
});

function submitted(form, push) {
  const target = document.querySelector(form.dataset.swap);
  if (form.method === "post") {
    swap(target, form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    return;
  }
  const address = addressOf(form);
  if ("push" in form.dataset) show(address, push);
  swap(target, address);
}

// What one types is one step of the history, however many requests it takes.
const typed = new Set();
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-swap]");
  if (!form) return;
  event.preventDefault();
  clearTimeout(waiting.get(form));
  submitted(form, !typed.delete(form));
});

const waiting = new Map();
const PAUSE_MS = 120;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-swap][data-swap-on=input]");
  if (!form) return;
  clearTimeout(waiting.get(form));
  waiting.set(
    form,
    setTimeout(() => {
      submitted(form, !typed.has(form));
      typed.add(form);
    }, PAUSE_MS),
  );
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-swap]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if ("push" in link.dataset) show(link.href);
  swap(document.querySelector(link.dataset.swap), link.href);
});

// Live parts, rendered by the server when they change: <div data-live="address of an event stream">.
export function follow(part) {
  const source = new EventSource(part.dataset.live);
  source.addEventListener("part", (event) => {
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...part.querySelectorAll("details[open][id]")].map((one) => one.id);
    part.innerHTML = event.data;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus();
    part.dispatchEvent(new CustomEvent("latent:swapped", { bubbles: true }));
  });
  source.addEventListener("end", () => {
    source.close();
    part.dispatchEvent(new CustomEvent("latent:ended", { bubbles: true }));
  });
  addEventListener("pagehide", () => source.close());
}
for (const part of document.querySelectorAll("[data-live]")) follow(part);

// <button data-copy="#id"> copies the text of an element, <button data-copy-text="…"> its own.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy], button[data-copy-text]");
  if (!button) return;
  const from = button.dataset.copy && document.querySelector(button.dataset.copy);
  const text = from ? (from.value ?? from.textContent) : (button.dataset.copyText ?? "");
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // without https there is no clipboard API
    area.value = text;
    button.after(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 2000);
});

// "/" focuses the search field, unless an input has the focus.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
  const field = document.getElementById("q");
  if (field) {
    event.preventDefault();
    field.focus();
    field.select();
  }
});
