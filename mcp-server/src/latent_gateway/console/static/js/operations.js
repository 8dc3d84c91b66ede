// Ticks of documents survive the live renewal of their list; all of a list are ticked by one box; imports show progress.
import { csrf, alertOf, LOST } from "./frame.js";

const ticked = new Set();
const boxes = (within) => within.querySelectorAll("input[type=checkbox][name=doc]");

function count() {
  for (const shown of document.querySelectorAll("[data-count]")) {
    shown.textContent = ticked.size ? `${ticked.size} chosen` : "";
  }
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("[data-tick]")) {
    for (const one of boxes(document.querySelector(box.dataset.tick))) {
      one.checked = box.checked;
      ticked[box.checked ? "add" : "delete"](one.id);
    }
  } else if (box.matches("[name=doc]")) {
    ticked[box.checked ? "add" : "delete"](box.id);
  }
  count();
});

document.addEventListener("latent:swapped", (event) => {
  for (const one of boxes(event.target)) one.checked = ticked.has(one.id);
});

// An import: the form works without a script; this adds a progress bar. Its fields are sent in the address.
for (const form of document.querySelectorAll("form[data-import]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const address = new URL(form.action);
    for (const one of form.querySelectorAll("[data-query]")) {
      if (one.type === "checkbox" ? one.checked : one.value) address.searchParams.set(one.dataset.query, one.value);
    }
    const body = new FormData();
    body.set("file", form.querySelector("[type=file]").files[0]);
    const sending = form.querySelector(".sending");
    const bar = sending.querySelector("progress");
    const status = sending.querySelector("[role=status]");
    const button = form.querySelector("button");
    const failed = (message) => {
      status.replaceChildren(alertOf(message));
      button.disabled = false;
    };
    const request = new XMLHttpRequest();
    request.upload.addEventListener("progress", (step) => {
      const percent = step.lengthComputable ? Math.floor((100 * step.loaded) / step.total) : 0;
      bar.value = percent;
      status.textContent = percent < 100 ? `${percent} % sent` : "Sent; the server checks it …";
    });
    request.addEventListener("load", () => {
      if (request.status < 400) return location.assign(request.responseURL);
      const answer = new DOMParser().parseFromString(request.responseText, "text/html");
      failed(answer.querySelector("[role=alert], .alert")?.textContent ?? "The file was not accepted.");
    });
    request.addEventListener("error", () => failed(LOST));
    request.open("POST", address);
    request.setRequestHeader("X-CSRF-Token", csrf);
    request.send(body);
    sending.hidden = false;
    button.disabled = true;
  });
}
