/** The trends page: sort a table by a column, search within the tables, show long ones in part. It is whole without. */
import { keepForLater } from "./keep.mjs";
import { fold } from "./matching.mjs";
import { part } from "./pages.mjs";

const FIRST = 20;

export function trendsPage() {
  const tables = [...document.querySelectorAll("table.ranked")];
  const rowsOf = (table) => [...table.tBodies[0].rows];
  const words = new Map(tables.flatMap(rowsOf).map((row) => [row, fold([...row.querySelectorAll("bdi")].map((one) => one.textContent).join(" "))]));

  for (const table of tables) {
    for (const head of table.tHead.querySelectorAll("[data-sort]")) {
      const button = part("button", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => sort(table, head));
    }
  }

  function sort(table, head) {
    const column = head.cellIndex;
    const numbers = head.dataset.sort === "number";
    const descending = head.hasAttribute("aria-sort") ? head.ariaSort === "ascending" : numbers && column > 0;
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    // A row without a number comes last, whichever way.
    const value = (row) => (numbers ? (row.cells[column].dataset.value === "" ? NaN : Number(row.cells[column].dataset.value)) : row.cells[column].textContent);
    const order = (a, b) => (numbers ? a - b : a.localeCompare(b)) * (descending ? -1 : 1);
    const rows = rowsOf(table).map((row) => [row, value(row)]);
    rows.sort(([, a], [, b]) => Number(Number.isNaN(a)) - Number(Number.isNaN(b)) || order(a, b) || 0);
    table.tBodies[0].append(...rows.map(([row]) => row));
    show();
  }

  const form = document.getElementById("filter");
  const field = document.getElementById("filter-text");
  const status = document.getElementById("filter-status");

  /** Show the rows that hold all typed words; of a table that nobody has opened and nobody searches in, the first ones. */
  function show() {
    const wanted = fold(field.value).split(" ").filter(Boolean);
    let found = 0;
    for (const table of tables) {
      const whole = wanted.length > 0 || opened.has(table);
      rowsOf(table).forEach((row, place) => {
        const fits = wanted.every((word) => words.get(row).includes(word));
        row.hidden = !fits || (!whole && place >= FIRST);
        found += Number(fits);
      });
      const more = buttons.get(table);
      if (more) more.hidden = whole;
    }
    status.textContent = wanted.length ? `${found} of ${words.size} rows` : "";
  }

  const opened = new Set();
  const buttons = new Map();
  for (const table of tables.filter((one) => rowsOf(one).length > FIRST + 5)) {
    const more = part("button", `Show all ${rowsOf(table).length}`, "more");
    more.type = "button";
    more.addEventListener("click", () => {
      opened.add(table);
      show();
      // The button is gone: go on with the first row that it has shown.
      rowsOf(table)[FIRST].querySelector("a")?.focus();
    });
    table.parentElement.after(more);
    buttons.set(table, more);
  }

  field.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
  keepForLater();
}
