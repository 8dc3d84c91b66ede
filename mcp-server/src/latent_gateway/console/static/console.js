"use strict";
// Live parts, upload progress, one keyboard shortcut. Everything else is plain HTML.

// Live parts, rendered by the server when they change: <div data-live="address of an event stream">.
for (const part of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(part.dataset.live);
  source.addEventListener("part", (event) => {
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    part.innerHTML = event.data; // escaped by the server; the content security policy blocks scripts in it
    if (focused) document.getElementById(focused)?.focus();
  });
  source.addEventListener("end", () => source.close());
  addEventListener("pagehide", () => source.close());
}

// Uploads: the form works without a script; this adds a progress bar.
for (const form of document.querySelectorAll("form[data-upload]")) {
  const shown = form.querySelector(".sending");
  const bar = shown.querySelector("progress");
  const status = shown.querySelector("[role=status]");
  const button = form.querySelector("button");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const request = new XMLHttpRequest();
    const failed = (message) => {
      status.textContent = message;
      status.classList.add("bad");
      button.disabled = false;
    };
    request.upload.addEventListener("progress", (step) => {
      const percent = step.lengthComputable ? Math.floor((100 * step.loaded) / step.total) : 0;
      bar.value = percent;
      status.textContent = percent < 100 ? `${percent} % sent` : "Sent; waiting for the server …";
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
    request.addEventListener("error", () => failed("The connection was lost. Send the files again."));
    request.open("POST", form.action);
    request.send(new FormData(form));
    shown.hidden = false;
    status.classList.remove("bad");
    status.textContent = "0 % sent";
    button.disabled = true;
  });
}

// Empty fields are not part of a search's address.
document.addEventListener("htmx:configRequest", (event) => {
  for (const [name, value] of [...event.detail.formData]) {
    if (value === "") event.detail.formData.delete(name);
  }
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
