// Quality: the page is read again when an evaluation ends; a mark keeps the focus when its list is drawn again.

for (const part of document.querySelectorAll("[data-reload]"))
  part.addEventListener("latent:ended", () => {
    const job = part.dataset.live.split("/").pop();
    location.replace(`${location.pathname}?job=${job}`);
  });

const bench = document.getElementById("bench");
let pressed = "";
bench?.addEventListener("submit", (event) => {
  pressed = event.submitter?.id ?? "";
}, true);
bench?.addEventListener("latent:swapped", () => {
  if (pressed) document.getElementById(pressed)?.focus();
  pressed = "";
});
