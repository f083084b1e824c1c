"use strict";
// Sorts the matrices by a column and leaves out methods that are not asked for. Without it the page shows all, unsorted.
(() => {
  const find = document.getElementById("find");
  const tables = [...document.querySelectorAll(".matrix")];
  find.closest("p").hidden = false;

  // The number of a cell; what is not reached counts as infinite, what is not there comes last.
  function value(cell) {
    const text = (cell.querySelector("b") ?? cell).textContent.replaceAll(",", "");
    return text === "∞" ? Infinity : text === "–" || text === "" ? NaN : Number.parseFloat(text);
  }

  function compare(a, b) {
    return Number.isNaN(a) ? 1 : Number.isNaN(b) ? -1 : a - b;
  }

  function sort(table, heading, column) {
    const rising = heading.getAttribute("aria-sort") !== "ascending" && column > 0 && heading.hasAttribute("aria-sort");
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", rising || column === 0 ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows];
    if (column === 0) rows.sort((a, b) => a.cells[0].textContent.localeCompare(b.cells[0].textContent));
    else rows.sort((a, b) => {
      const [x, y] = [value(a.cells[column]), value(b.cells[column])];
      return rising || Number.isNaN(x) || Number.isNaN(y) ? compare(x, y) : compare(y, x);
    });
    table.tBodies[0].append(...rows);
  }

  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading, column));
    });
  }

  find.addEventListener("input", () => {
    const part = find.value.trim().toLowerCase();
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.classList.contains("apart") && !row.cells[0].textContent.toLowerCase().includes(part);
      }
    }
  });
})();
