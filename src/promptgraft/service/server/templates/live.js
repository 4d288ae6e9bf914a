// Replaces parts of a page with current ones from the server; without it, users reload the page.
"use strict";
(() => {
  const swap = async (part) => {
    if (part.contains(document.activeElement)) return; // do not move what is being used
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    const answer = await fetch(part.dataset.from, { credentials: "same-origin" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...fresh.body.childNodes);
    part.querySelectorAll("details").forEach((one, at) => { one.open = open[at] || false; });
  };
  document.querySelectorAll("[data-every]").forEach((part) => {
    setInterval(() => { if (!document.hidden) swap(part); }, 1000 * Number(part.dataset.every));
  });
  document.querySelectorAll("[data-events]").forEach((part) => {
    let due = 0;
    const events = new EventSource(part.dataset.events);
    const show = async () => {
      due = 0;
      await swap(part);
      if (part.querySelector("[data-ended]")) events.close(); // nothing more will come
    };
    events.onmessage = () => { due = due || setTimeout(show, 300); };
  });
})();
