// "Try it" of the API reference: sends the request with the person's own token and shows the answer as text.
import { alertOf, LOST } from "./frame.js";

const MAX_CHARS = 200_000;
const WAIT_MS = 60_000;
const form = document.querySelector("form[data-try]");
const shownCurl = document.querySelector("#try-curl code");
const answer = document.getElementById("try-answer");
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function request() {
  const { method, path, base, media } = form.dataset;
  let address = path;
  const query = new URLSearchParams();
  const headers = {};
  for (const field of form.querySelectorAll("[data-in][data-name]")) {
    const { in: place, name } = field.dataset;
    if (place === "path") address = address.replace(`{${name}}`, encodeURIComponent(field.value) || `{${name}}`);
    else if (field.value && place === "query") query.append(name, field.value);
    else if (field.value) headers[name] = field.value;
  }
  const text = form.querySelector("[data-in=body]");
  const file = form.querySelector("[data-in=file]")?.files[0];
  if (text) headers["Content-Type"] = media;
  const asked = query.toString();
  return { method, base, headers, path: address + (asked ? `?${asked}` : ""), body: text?.value ?? file };
}

function curl() {
  const { method, base, headers, path, body } = request();
  const parts = ["curl", "-H", '"Authorization: Bearer $LATENT_TOKEN"'];
  if (method !== "GET") parts.push("-X", method);
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (typeof body === "string") parts.push("--data-binary", quoted(body));
  else if (body) parts.push("--data-binary", quoted(`@${body.name}`));
  shownCurl.textContent = [...parts, quoted(base + path)].join(" ");
}

function show(response, milliseconds, text) {
  const line = document.createElement("p");
  line.textContent = `${response.status} ${response.statusText}, ${milliseconds} ms`;
  line.className = response.ok ? "state done" : "bad";
  const shown = document.createElement("pre");
  shown.tabIndex = 0;
  let body = text;
  try {
    body = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // not JSON: as it is
  }
  shown.textContent = body.length > MAX_CHARS ? `${body.slice(0, MAX_CHARS)}\n… cut` : body;
  answer.replaceChildren(line, shown);
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { method, headers, path, body } = request();
  const token = document.getElementById("try-token").value.trim();
  if (token) headers.Authorization = `Bearer ${token}`;
  form.setAttribute("aria-busy", "true");
  const began = performance.now();
  try {
    const sent = { method, headers, credentials: "omit", signal: AbortSignal.timeout(WAIT_MS) };
    const response = await fetch(path, body && method !== "GET" ? { ...sent, body } : sent);
    show(response, Math.round(performance.now() - began), await response.text());
  } catch {
    answer.replaceChildren(alertOf(LOST));
  }
  form.removeAttribute("aria-busy");
});
form?.addEventListener("input", curl);
