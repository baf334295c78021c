"use strict";
(() => {
  const table = document.querySelector("table.audits");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.sort);
  };
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      table.tBodies[0].append(...rows);
    });
  });
  const text = document.getElementById("filter-text");
  const verdict = document.getElementById("filter-verdict");
  const shown = document.getElementById("shown");
  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    let count = 0;
    rows.forEach((row) => {
      const fits = row.textContent.toLowerCase().includes(wanted) && (!verdict.value || row.dataset.verdict === verdict.value || row.dataset.outcome === verdict.value);
      row.hidden = !fits;
      row.style.display = fits ? "" : "none";
      document.getElementById(row.dataset.section).style.display = fits ? "" : "none";
      count += fits;
    });
    shown.textContent = `${count} of ${rows.length} shown`;
  };
  text.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  const open = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", open);
  open();
  addEventListener("beforeprint", () => document.querySelectorAll("details.audit, details.method").forEach((one) => { one.open = true; }));
})();
