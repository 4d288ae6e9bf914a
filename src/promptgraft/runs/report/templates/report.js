"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Targets of links stand inside closed rows.
  const reveal = (id) => {
    const target = id && document.getElementById(id);
    if (!target) return false;
    for (let up = target.parentElement; up; up = up.parentElement) {
      if (up.tagName === "DETAILS") up.open = true;
      if (up.hidden) up.hidden = false;
    }
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
    return true;
  };
  const follow = () => {
    const id = location.hash.slice(1);
    if (document.getElementById(id)?.closest("details")) reveal(id);
  };
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (link && link.getAttribute("href") === location.hash) follow();
  });
  follow();

  for (const controls of all(".controls")) {
    controls.hidden = false;
    const filter = controls.querySelector(".filter");
    const box = document.getElementById(filter.dataset.for);
    const count = controls.querySelector(".count");
    const rows = all(".row, tbody > tr", box);
    const only = all(".only", controls);
    const texts = new Map();
    const text = (row) => {
      if (!texts.has(row)) {
        const whole = "whole" in filter.dataset ? row : row.querySelector("summary");
        texts.set(row, whole.textContent.toLowerCase());
      }
      return texts.get(row);
    };
    const wants = {
      changed: (row) => ["better", "worse", "changed"].includes(row.dataset.outcome),
      failed: (row) => "failed" in row.dataset,
    };

    const apply = () => {
      const wanted = filter.value.trim().toLowerCase();
      const chosen = only.filter((box) => box.checked).map((box) => wants[box.value]);
      let shown = 0;
      for (const row of rows) {
        const shows = (!wanted || text(row).includes(wanted)) && chosen.every((fits) => fits(row));
        row.hidden = !shows;
        shown += shows ? 1 : 0;
      }
      for (const group of all(".group", box)) {
        const found = all(".row", group).some((row) => !row.hidden);
        group.hidden = Boolean(wanted) && !found;
        if (wanted) group.open = found;
      }
      count.textContent = wanted || chosen.length ? `${shown} of ${rows.length}` : "";
    };
    filter.addEventListener("input", apply);
    for (const box of only) box.addEventListener("change", apply);

    const expand = controls.querySelector(".expand");
    expand.hidden = box.tagName === "TABLE";
    expand.addEventListener("click", () => {
      const open = expand.textContent === "Expand all";
      for (const row of rows) if (!row.hidden) row.open = open;
      expand.textContent = open ? "Collapse all" : "Expand all";
    });

    const order = controls.querySelector(".order");
    if (order) {
      const worth = (row) => (row.dataset.mean === "" ? -Infinity : Number(row.dataset.mean));
      const isEstimate = (row) => "estimated" in row.dataset;
      const by = {
        number: (a, b) => a.dataset.number - b.dataset.number,
        mean: (a, b) => isEstimate(a) - isEstimate(b) || worth(b) - worth(a) || a.dataset.number - b.dataset.number,
      };
      order.addEventListener("change", () => {
        for (const list of all(".list", box)) {
          list.append(...[...list.children].sort(by[order.value]));
        }
      });
    }

    const jump = controls.querySelector(".jump");
    if (jump) {
      jump.addEventListener("change", () => {
        count.textContent = reveal(`c${jump.value}`) ? "" : `no line for #${jump.value}`;
      });
    }
  }

  for (const button of all(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.for);
      getSelection().selectAllChildren(text);
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected: press Ctrl+C";
      }
    });
  }

  for (const table of all("table.sortable")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => {
          const cell = row.cells[column];
          const text = cell.dataset.value || cell.textContent.trim();
          return Number.isNaN(Number(text)) ? text : Number(text);
        };
        const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
        const body = table.tBodies[0];
        const sorted = [...body.rows].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1));
        body.append(...sorted);
      });
    });
  }
})();
