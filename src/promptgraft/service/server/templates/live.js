// Replaces parts of a page with current ones from the server; without it, users reload the page.
"use strict";
(() => {
  const all = (selector, inside) => [...inside.querySelectorAll(selector)];
  const keyOf = (one) => one.id || one.name + one.value || one.getAttribute("href") || one.textContent;
  class SignedOut extends Error {}
  class Gone extends Error {}
  const served = new Map();
  const remember = (part) => served.set(part.id, part.outerHTML);

  // What users have opened, chosen, scrolled to and focused stays.
  const replace = (old, fresh) => {
    const focused = old.contains(document.activeElement) && keyOf(document.activeElement);
    const open = all("details", old).map((one) => one.open);
    const chosen = new Set(all("input:checked", old).map(keyOf));
    const tops = all(".scroll", old).map((one) => [one.scrollTop, one.scrollLeft]);
    old.replaceWith(fresh);
    all("details", fresh).forEach((one, at) => { one.open = open[at] ?? one.open; });
    all("input", fresh).forEach((one) => { one.checked = one.checked || chosen.has(keyOf(one)); });
    all(".scroll", fresh).forEach((one, at) => one.scrollTo(...(tops[at] || [0, 0])));
    const again = focused && all("a, button, input, summary, [tabindex]", fresh).find((one) => keyOf(one) === focused);
    if (again) again.focus({ preventScroll: true });
  };

  const update = async (area) => {
    // A server that hangs keeps its connections open, and says nothing.
    const patience = new AbortController();
    setTimeout(() => patience.abort(), 10000);
    const answer = await fetch(area.dataset.from, { credentials: "same-origin", signal: patience.signal });
    if (answer.status === 401) throw new SignedOut();
    if (answer.status === 404) throw new Gone();
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of all("[data-part]", fresh)) {
      let old;
      // A button that is replaced while somebody presses it would do nothing.
      while ((old = document.getElementById(part.id))?.matches(":active")) {
        await new Promise((done) => setTimeout(done, 50));
      }
      if (old && served.get(part.id) !== part.outerHTML) {
        remember(part);
        replace(old, part);
      }
    }
  };
  const tell = (area, text) => all(".lost", area).forEach((one) => { one.textContent = text; });
  const lost = (area, error) => tell(area, error instanceof SignedOut
    ? "You are signed out; reload the page to sign in."
    : error instanceof Gone ? "It was deleted; the page shows what was known then."
    : "The connection is lost; the page shows what was known then.");

  // What was typed after the session had ended stays in this tab while a provider signs the user in.
  const KEPT = "promptgraft-kept";
  const kept = all("[data-kept]", document).map((one) => [one.name, one.value]);
  for (const link of all("[data-leaves]", document)) {
    link.removeAttribute("target");
    link.addEventListener("click", () => sessionStorage.setItem(KEPT, JSON.stringify([Date.now(), kept])));
  }
  const [since, fields] = JSON.parse(sessionStorage.getItem(KEPT) || "[0, []]");
  if (since && document.querySelector(".who")) {
    sessionStorage.removeItem(KEPT);
    if (fields.length && Date.now() - since < 600000) {
      const form = document.createElement("form");
      Object.assign(form, { method: "post", action: new URL("../kept", document.currentScript.src).href });
      for (const [name, value] of fields) {
        form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
      }
      document.body.append(form);
      form.submit();
    }
  }

  for (const area of all("[data-from]", document)) all("[data-part]", area).forEach(remember);

  for (const area of all("[data-every]", document)) {
    const look = () => update(area).then(() => tell(area, ""), (error) => lost(area, error));
    setInterval(() => { if (!document.hidden) look(); }, 1000 * Number(area.dataset.every));
  }
  for (const area of all("[data-events]", document)) {
    let due = 0;
    const events = new EventSource(area.dataset.events);
    const show = async () => {
      due = 0;
      try {
        await update(area);
        const hasEnded = area.querySelector("[data-ended]");
        if (hasEnded) { // nothing more will come
          events.close();
          clearInterval(looking);
        }
        if (hasEnded || events.readyState === EventSource.OPEN) tell(area, "");
        else lost(area);
      } catch (error) {
        lost(area, error);
      }
    };
    const looking = setInterval(() => { if (!document.hidden && !due) show(); }, 20000);
    events.onopen = () => tell(area, "");
    // A stream does not tell whether it failed or its job has ended; a page does.
    events.onerror = show;
    events.onmessage = () => { due = due || setTimeout(show, 300); };
  }
})();
