// Adding files on any page of a container. A batch has a bar and survives a lost connection.

import { csrf } from "./frame.js";

const root = document.getElementById("adding");
const base = `/console/containers/${root.dataset.container}`;
const uploads = "/resumable-uploads";
const PIECE = 4 * 1024 * 1024;
const SLOTS = 3;
const MAX_FILES = 10_000;
const TRIES = 12; // without a byte that arrives: three minutes of pauses
const PIECE_MS = 240_000;
const STOPPED = "Stopped before it was sent.";

const amount = (n) => `${n.toLocaleString("en")} file${n === 1 ? "" : "s"}`;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function size(bytes) {
  const value = bytes / (bytes < 1e6 ? 1e3 : 1e6);
  return `${value.toFixed(value < 10 ? 1 : 0)} ${bytes < 1e6 ? "kB" : "MB"}`;
}

const span = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`);

class Failure extends Error {
  constructor(message, status = 0, seconds = 0) {
    super(message);
    Object.assign(this, { status, seconds });
  }
  // No answer, a gateway that starts, another offset, a full queue: the same may succeed later.
  get passes() {
    return [0, 409, 502, 503, 504].includes(this.status) || (this.status === 429 && this.seconds <= 60);
  }
}

// fetch does not tell how much of a body is sent.
function request(method, path, body, headers = {}, progress = () => {}) {
  return new Promise((done, failed) => {
    const sent = new XMLHttpRequest();
    sent.open(method, base + path);
    for (const [name, value] of Object.entries({ "X-CSRF-Token": csrf, "X-Part": "1", ...headers }))
      sent.setRequestHeader(name, value);
    sent.upload.onprogress = (step) => progress(step.loaded);
    sent.timeout = PIECE_MS;
    sent.onerror = sent.ontimeout = () => failed(new Failure("The connection to the server was lost."));
    sent.onload = () => {
      const json = sent.getResponseHeader("Content-Type")?.includes("json"); // else a proxy's page
      const answer = json ? JSON.parse(sent.responseText) : {};
      if (sent.status < 400) return done(answer);
      let message = answer.issues?.[0]?.message ?? `The server answered ${sent.status}.`;
      if (sent.status === 401) message = "Your session has ended. Sign in in another tab, then try again.";
      failed(new Failure(message, sent.status, Number(sent.getResponseHeader("Retry-After"))));
    };
    sent.send(body);
  });
}

const ask = (path, question) => request("POST", path, JSON.stringify(question), { "Content-Type": "application/json" });

const batches = new Set();
let active = 0;

class Batch {
  constructor() {
    this.id = [...crypto.getRandomValues(new Uint8Array(16))].join("-"); // its jobs are one group
    Object.assign(this, { left: [], running: 0, failed: [], open: new Map(), documents: 0, marks: [] });
    this.box = root.querySelector("template").content.firstElementChild.cloneNode(true);
    this.box.addEventListener("click", (event) => this[event.target.dataset.do]?.());
    (document.getElementById("batches") ?? root.querySelector(".dock")).prepend(this.box);
    batches.add(this);
    this.write("h2", "Reading the files");
  }

  part(selector) {
    return this.box.querySelector(selector);
  }

  write(selector, textContent) {
    return Object.assign(this.part(selector), { textContent });
  }

  note(text) {
    this.write(".batch-note", text).hidden = !text;
  }

  ended(yes) {
    for (const part of this.box.querySelectorAll(".while-sending")) part.hidden = yes;
    this.part("[data-do=close]").hidden = !yes;
  }

  begin(files) {
    this.files = files;
    this.left = [...files];
    this.bytes = files.reduce((sum, one) => sum + one.file.size, 0);
    this.write("[role=status]", `Sending ${amount(files.length)}.`);
    this.show();
  }

  get sending() {
    return this.left.length + this.running > 0;
  }

  show() {
    const all = this.files.length;
    const done = all - this.left.length - this.running - this.failed.length;
    const sent = this.files.reduce((sum, one) => sum + one.sent, 0);
    Object.assign(this.part("progress"), { max: this.bytes || 1, value: this.bytes ? sent : 1 });
    if (this.sending) {
      this.write("h2", `${done.toLocaleString("en")} of ${amount(all)} sent`);
      this.write(".batch-figures", `${size(sent)} of ${size(this.bytes)}${this.speed(sent)}`);
    } else {
      const open = this.open.size;
      const ready = this.documents - open;
      this.write("h2", open ? `${amount(this.documents)} sent` : `${amount(ready)} added`);
      this.write(".batch-figures", open ? `${ready} searchable, ${open} in work` : ready === all ? "All of them are searchable." : "");
      this.ended(true);
    }
    this.list(".batch-failed", this.failed, "failed");
  }

  // Of the last six seconds.
  speed(sent) {
    const now = performance.now();
    this.marks = [...this.marks.filter((mark) => now - mark.now < 6000), { now, sent }];
    const { now: then, sent: before } = this.marks[0];
    const perSecond = ((sent - before) / (now - then)) * 1000;
    return now - then > 500 && perSecond > 0 ? ` · ${size(perSecond)}/s · ${span((this.bytes - sent) / perSecond)} left` : "";
  }

  list(selector, items, what) {
    const box = this.part(selector);
    if (box.dataset.count === `${items.length}`) return;
    Object.assign(box, { hidden: !items.length, open: what === "failed" });
    box.dataset.count = items.length;
    box.querySelector("summary").textContent = `${amount(items.length)} ${what}`;
    const lines = items.slice(0, 100).map(({ path, reason }) => {
      const line = document.createElement("li");
      line.append(path, Object.assign(document.createElement("span"), { textContent: reason }));
      return line;
    });
    if (items.length > 100) lines.push(`and ${items.length - 100} more`);
    box.querySelector("ul").replaceChildren(...lines);
  }

  refuse(cause) {
    this.write("h2", "Nothing was added");
    this.write(".batch-figures", this.write("[role=status]", cause).textContent);
    this.ended(true);
  }

  fail(item, reason) {
    item.reason = reason;
    this.failed.push(item);
  }

  stop() {
    for (const item of this.left.splice(0)) this.fail(item, STOPPED);
    this.stopped = true;
    this.show();
  }

  close() {
    batches.delete(this);
    this.box.remove();
  }

  again() {
    this.stopped = false;
    for (const item of this.failed) item.sent = 0;
    this.left.push(...this.failed.splice(0));
    this.ended(false);
    this.show();
    pump();
  }
}

function pump() {
  for (const batch of batches) while (active < SLOTS && batch.left.length) start(batch, batch.left.shift());
}

async function start(batch, item) {
  active += 1;
  batch.running += 1;
  try {
    const job = await send(batch, item);
    batch.documents += 1;
    batch.open.set(job, item);
    follow(batch);
  } catch (failure) {
    batch.fail(item, failure.message);
  }
  active -= 1;
  batch.running -= 1;
  if (!batch.sending) batch.note("");
  batch.show();
  pump();
}

// Sends a file piece by piece, until its document has a job.
async function send(batch, item) {
  const { file, path } = item;
  const query = `?${new URLSearchParams({ path, modified: Math.max(0, file.lastModified) })}`;
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(path.split("/").pop())));
  const begins = { "Upload-Length": file.size, "Upload-Metadata": `filename ${name}` };
  let [place, at, tries] = ["", 0, 0];
  for (;;) {
    if (batch.stopped) throw new Failure(STOPPED);
    try {
      const piece = await readable(file.slice(at, at + PIECE));
      const headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": at, "X-Batch-Id": batch.id };
      if (!place) Object.assign(headers, begins);
      const progress = (loaded) => {
        item.sent = Math.min(file.size, at + loaded);
        batch.show();
      };
      const answer = await request(place ? "PATCH" : "POST", (place || uploads) + query, piece, headers, progress);
      if (answer.received > at) tries = 0;
      place = `${uploads}/${answer.file_ref}`;
      at = item.sent = answer.received;
      batch.note("");
      if (answer.job_id) return answer.job_id;
    } catch (failure) {
      if (failure.status === 404 && place) [place, at] = ["", 0]; // it has expired
      else if (!failure.passes) throw failure;
      tries += 1;
      if (tries > TRIES) throw failure;
      if (failure.status !== 409) {
        batch.note(`${failure.message} Trying again; what was sent is kept.`);
        await pause(Math.max(failure.seconds * 1000, Math.min(20_000, 500 * 2 ** tries)));
      }
      if (place) at = await request("GET", place).then((known) => known.received, () => at);
      item.sent = at;
    }
  }
}

// A request with a file that cannot be read fails without a cause.
const readable = (piece) =>
  piece.slice(0, 1).arrayBuffer().then(
    () => piece,
    () => Promise.reject(new Failure("The file cannot be read: it was changed or removed. Choose it again.", 400)),
  );

// What becomes of the files: their jobs, until all have ended.
async function follow(batch) {
  if (batch.followed) return;
  batch.followed = true;
  let wait = 1000;
  while (batch.open.size && batches.has(batch)) {
    await pause(document.hidden ? 10_000 : wait);
    const jobs = [...batch.open.keys()].slice(0, 200);
    try {
      const { open, failed } = await ask("/progress", { jobs: jobs.map(Number) });
      for (const one of failed) batch.fail(batch.open.get(one.job_id), one.message);
      batch.documents -= failed.length;
      const ended = jobs.filter((job) => !open.includes(job));
      for (const job of ended) batch.open.delete(job);
      wait = ended.length ? 1000 : Math.min(5000, wait * 1.4);
    } catch (failure) {
      if (!failure.passes) break;
      wait = 5000;
    }
    batch.show();
  }
  batch.followed = false;
  if (!batch.sending) batch.write("[role=status]", `${batch.part("h2").textContent}. ${batch.failed.length} failed.`);
}

// The server compares files of folders with the rules of `latent ingest`.
const heavy = new Set(root.dataset.folders.split(" "));
const called = (call) => new Promise((done, failed) => call(done, failed));

async function* walk(entry, above) {
  if (entry.isFile) yield { file: await called((...to) => entry.file(...to)), path: above + entry.name, within: above };
  else if (!heavy.has(entry.name)) {
    const reader = entry.createReader();
    for (;;) {
      const found = await called((...to) => reader.readEntries(...to));
      if (!found.length) return;
      for (const child of found) yield* walk(child, `${above}${entry.name}/`);
    }
  }
}

const chosen = (files) =>
  [...files].map((file) => ({ file, path: file.webkitRelativePath || file.name, within: file.webkitRelativePath }));

async function* dropped(entries) {
  for (const entry of entries) if (entry) yield* walk(entry, "");
}

async function take(found) {
  const batch = new Batch();
  const items = [];
  try {
    for await (const item of found) {
      if (items.length === MAX_FILES) {
        batch.note(`Only the first ${amount(MAX_FILES)} are added. For more, use latent ingest.`);
        break;
      }
      items.push(Object.assign(item, { sent: 0 }));
    }
    const skipped = await selection(items.filter((item) => item.within));
    const files = items.filter((item) => !skipped.has(item.path));
    batch.list(".batch-skipped", [...skipped].map(([path, reason]) => ({ path, reason })), "skipped");
    if (files.length) batch.begin(files);
    else batch.refuse(skipped.size ? "All files are skipped." : "No file was found.");
  } catch (failure) {
    batch.refuse(failure.message);
  }
  pump();
}

async function selection(items) {
  const rules = {};
  for (const { file, path } of items)
    if (/(^|\/)\.(latent|git)ignore$/.test(path) && file.size < 65_536) rules[path] = await file.text();
  const reasons = new Map();
  for (let n = 0; n < items.length; n += 1000) {
    const paths = items.slice(n, n + 1000).map((item) => item.path);
    for (const one of (await ask("/selection", { paths, rules })).skipped) reasons.set(one.path, one.reason);
  }
  return reasons;
}

const veil = root.querySelector(".veil");
for (const kind of ["dragover", "drop"])
  addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    veil.hidden = kind === "drop";
    if (veil.hidden) take(dropped([...event.dataTransfer.items].map((one) => one.webkitGetAsEntry())));
  });
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) veil.hidden = true;
});

// Pasted files are added; a text or an address goes into its form on the tab Add.
const form = document.querySelector("form[data-files]");
document.addEventListener("paste", (event) => {
  if (event.target.closest?.("input, textarea, select")) return;
  if (event.clipboardData.files.length) return take(chosen(event.clipboardData.files));
  const text = event.clipboardData.getData("text/plain").trim();
  if (!text) return;
  sessionStorage.setItem("pasted", text);
  if (document.getElementById("uri")) fill();
  else location.assign(`${base}/add`);
});

function fill() {
  const text = sessionStorage.getItem("pasted") ?? "";
  sessionStorage.removeItem("pasted");
  if (!text) return;
  const field = document.getElementById(/^https?:\/\/\S+$/.test(text) ? "uri" : "text");
  field.value = text;
  field.focus();
}

if (form) {
  form.classList.add("live");
  const folders = "webkitdirectory" in form.folder && !matchMedia("(pointer: coarse)").matches;
  for (const part of form.querySelectorAll(".by-folder")) part.hidden = !folders;
  document.querySelector(".scripted")?.removeAttribute("hidden");
  for (const input of form.querySelectorAll("input[type=file]"))
    input.addEventListener("change", () => {
      const files = chosen(input.files);
      input.value = "";
      if (files.length) take(files);
    });
  form.addEventListener("submit", (event) => event.preventDefault());
  if (document.getElementById("uri")) fill();
}

addEventListener("beforeunload", (event) => {
  if ([...batches].some((batch) => batch.sending)) event.preventDefault();
});
