import { csrf } from "./frame.js";

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
    request.setRequestHeader("X-CSRF-Token", csrf);
    request.send(new FormData(form));
    shown.hidden = false;
    status.classList.remove("bad");
    status.textContent = "0 % sent";
    button.disabled = true;
  });
}
