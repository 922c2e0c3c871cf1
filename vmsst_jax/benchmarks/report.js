// Sorts a table by the column whose heading is clicked: numbers from the highest down first, texts from A on.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = Array.from(table.tHead.rows[0].cells);
  headings.forEach((heading, column) => {
    if (heading.querySelector("a")) {
      return;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(body, headings, column));
  });
}

function sort(body, headings, column) {
  const numeric = headings[column].classList.contains("n");
  const before = headings[column].getAttribute("aria-sort");
  const falling = before ? before === "ascending" : numeric;
  const value = (row) => row.cells[column].dataset.value;
  const rows = Array.from(body.rows);
  rows.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === undefined || y === undefined) {
      return (x === undefined) - (y === undefined); // what is missing stays at the end
    }
    const order = numeric ? Number(x) - Number(y) : x.localeCompare(y);
    return falling ? -order : order;
  });
  body.append(...rows);
  headings.forEach((heading) => heading.removeAttribute("aria-sort"));
  headings[column].setAttribute("aria-sort", falling ? "descending" : "ascending");
}
