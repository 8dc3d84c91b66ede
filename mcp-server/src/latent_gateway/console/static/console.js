"use strict";
// What needs a script: parts that change while one looks, progress of uploads, one key. Everything else is plain HTML.

// Parts drawn by the server, whenever they change: <div data-live="address of an event stream">.
for (const part of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(part.dataset.live);
  source.addEventListener("part", (event) => {
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    part.innerHTML = event.data; // escaped by the server; the policy of this page runs nothing in it
    if (focused) document.getElementById(focused)?.focus();
  });
  source.addEventListener("end", () => source.close());
  addEventListener("pagehide", () => source.close());
}

// Uploads: the form works by itself; here it is sent with a bar that shows how far it is.
for (const form of document.querySelectorAll("form[data-upload]")) {
  const shown = form.querySelector(".sending");
  const bar = shown.querySelector("progress");
  const told = shown.querySelector("[role=status]");
  const button = form.querySelector("button");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const request = new XMLHttpRequest();
    const failed = (message) => {
      told.textContent = message;
      told.classList.add("bad");
      button.disabled = false;
    };
    request.upload.addEventListener("progress", (step) => {
      const percent = step.lengthComputable ? Math.floor((100 * step.loaded) / step.total) : 0;
      bar.value = percent;
      told.textContent = percent < 100 ? `${percent} % sent` : "Sent; being accepted …";
    });
    request.addEventListener("load", () => {
      if (request.status < 400) {
        bar.value = 100;
        location.assign(request.responseURL);
        return;
      }
      const answer = new DOMParser().parseFromString(request.responseText, "text/html");
      failed(answer.querySelector("[role=alert]")?.textContent ?? "The files were not accepted.");
    });
    request.addEventListener("error", () => failed("The connection broke off; send the files again."));
    request.open("POST", form.action);
    request.send(new FormData(form));
    shown.hidden = false;
    told.classList.remove("bad");
    told.textContent = "0 % sent";
    button.disabled = true;
  });
}

// A search's address holds what was asked, not what was left empty.
document.addEventListener("htmx:configRequest", (event) => {
  for (const [name, value] of [...event.detail.formData]) {
    if (value === "") event.detail.formData.delete(name);
  }
});

// "/" leads to the search field, unless something is being written.
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || writing) return;
  const field = document.getElementById("q");
  if (field) {
    event.preventDefault();
    field.focus();
    field.select();
  }
});
