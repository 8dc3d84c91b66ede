// Selecting documents of a list, and the boxes of a passage that are read while the page is shown.
import { swap } from "./frame.js";

function counted(form) {
  const boxes = [...form.querySelectorAll("input[name=doc]")];
  const ticked = boxes.filter((box) => box.checked).length;
  const all = form.querySelector("[data-all]");
  all.checked = ticked > 0 && ticked === boxes.length;
  all.indeterminate = ticked > 0 && ticked < boxes.length;
  form.querySelector("[data-count]").textContent = ticked ? `${ticked} selected` : "Select all";
  for (const button of form.querySelectorAll("button[name=change]")) button.disabled = !ticked;
}

function begin() {
  for (const form of document.querySelectorAll("[data-selection]")) counted(form);
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-selection]");
  if (!form) return;
  if (event.target.matches("[data-all]")) {
    for (const box of form.querySelectorAll("input[name=doc]")) box.checked = event.target.checked;
  }
  counted(form);
});
document.addEventListener("latent:swapped", begin);
addEventListener("pageshow", begin);
begin();

const boxes = document.querySelector("[data-boxes]");
if (boxes) swap(boxes, boxes.dataset.boxes);

// The passage is shown in the middle of its column, without moving the page away from its image.
const chosen = document.querySelector(".passages .chosen");
const column = chosen?.closest(".passages");
if (column && column.scrollHeight > column.clientHeight) {
  column.scrollTop = chosen.offsetTop - column.offsetTop - column.clientHeight / 4;
}
