// The answer while it is written. Without scripts the form loads a page with the whole answer.
import { LOST, alertOf, csrf } from "./frame.js";

const form = document.getElementById("question");
const asked = document.getElementById("asked");
const stop = document.getElementById("stop");
let running = null;

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.id === "q" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
stop?.addEventListener("click", () => running?.abort());

async function ask() {
  running?.abort();
  const control = (running = new AbortController());
  const text = document.createElement("div");
  text.className = "answertext streaming";
  text.textContent = "Searching …";
  asked.replaceChildren(text);
  asked.setAttribute("aria-busy", "true");
  stop.hidden = false;
  try {
    const answer = await fetch("/console/ask/events", {
      method: "POST",
      body: new URLSearchParams(new FormData(form)),
      headers: { "X-Part": "1", "X-CSRF-Token": csrf },
      signal: control.signal,
    });
    if (answer.status === 401) location.assign("/login");
    if (!answer.ok) asked.innerHTML = await answer.text(); // an alert of our own server, escaped there
    else if (!(await read(answer.body, text))) asked.append(alertOf(LOST));
  } catch {
    if (control.signal.aborted) text.append("\n(stopped)");
    else asked.append(alertOf(LOST));
  }
  if (running !== control) return;
  running = null;
  stop.hidden = true;
  asked.removeAttribute("aria-busy");
}

// Whether the answer came to its end.
async function read(body, text) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(event) ?? [];
      if (!name) continue;
      const shown = JSON.parse(data);
      if (name === "sources") {
        text.textContent = "";
        text.insertAdjacentHTML("afterend", shown);
        asked.removeAttribute("aria-busy");
      } else if (name === "text") text.append(shown);
      else if (name === "error") asked.append(alertOf(shown));
      else asked.innerHTML = shown;
      if (name === "end" || name === "error") return true;
    }
  }
}
