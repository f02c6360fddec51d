/** The list of all queries on a release's own page: searched, paged, opened, downloaded. It needs no other file. */
import { Index } from "./matching.mjs";
import { bar, interval, isolated, number, part, percent } from "./pages.mjs";

const PER_PAGE = 50;
const SHOWN_EACH = 20;
const at = (id) => document.getElementById(id);
const { measure, per, tables } = JSON.parse(at("explorer-data").textContent);
const [form, field, list, status] = ["explorer", "explorer-text", "explorer-list", "explorer-status"].map(at);
const names = tables.queries.query;
const say = measure === "share" ? percent : number;

/** A column is a list, or the one value that all rows have. */
const cell = (column, row) => (Array.isArray(column) ? column[row] : column);
/** A query of another table is its place among the queries, or a text where it is not among them. */
const named = (value) => (typeof value === "number" ? names[value] : value);

// ---- one query -------------------------------------------------------------------------------------------------------

/** The rows of a table by the place of their query, found when the first query is opened. */
const groups = new Map();
function rowsOf(name, place) {
  if (!tables[name]) return null;
  if (!groups.has(name)) {
    const rows = new Map();
    tables[name].query.forEach((query, row) => {
      if (rows.has(query)) rows.get(query).push(row);
      else rows.set(query, [row]);
    });
    groups.set(name, rows);
  }
  return groups.get(name).get(place) ?? [];
}

function numbers(table, row) {
  const made = part("span", "", "value");
  const column = table[measure ?? "count"];
  if (column === undefined) return made;
  made.append(`${say(cell(column, row))} `, part("small", interval(cell(table.low, row), cell(table.high, row), say)));
  return made;
}

function related(title, name, key, place) {
  const rows = rowsOf(name, place);
  if (rows === null) return [];
  const heading = part("h3", title);
  if (!rows.length) return [heading, part("p", "None were frequent enough to be listed.", "soft")];
  const items = part("ul");
  for (const row of rows.slice(0, SHOWN_EACH)) {
    const item = part("li");
    const text = named(tables[name][key][row]);
    item.append(text === "" && name === "clicks" ? part("i", "no click") : isolated(text));
    if (key === "next_query" && cell(tables[name].low, row) <= 0) item.append(" ", part("small", "may be noise alone"));
    item.append(numbers(tables[name], row));
    items.append(item);
  }
  const more = rows.length > SHOWN_EACH ? [part("p", `and ${number(rows.length - SHOWN_EACH)} more, in the download`, "soft")] : [];
  return [heading, items, ...more];
}

const measured = (row) => [measure, "low", "high"].map((name) => cell(tables.queries[name], row));
const ends = measure === null ? [] : [0, tables.queries.high, tables.queries[measure]].flat();
const [least, most] = ends.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [0, 0]);

function item(place) {
  const opens = ["clicks", "reformulations"].some((name) => rowsOf(name, place)?.length);
  const made = part("li");
  const line = part(opens ? "summary" : "div", "", "row");
  const label = part("span", "", "label");
  label.append(names[place].trim() ? isolated(names[place]) : part("i", "(blank)"));
  line.append(label);
  if (measure !== null) line.append(bar(measured(place), least, most), numbers(tables.queries, place));
  if (!opens) {
    made.append(line);
    return made;
  }
  const details = part("details");
  details.append(line);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      const inside = part("div", "", "opened");
      inside.append(...related("Pages that people clicked on", "clicks", "url", place), ...related("What people searched for next", "reformulations", "next_query", place));
      details.append(inside);
    }
  });
  made.append(details);
  return made;
}

// ---- all queries -----------------------------------------------------------------------------------------------------

let index;
let found = null;
let page = 0;

function show() {
  const many = found === null ? names.length : found.length;
  const start = page * PER_PAGE;
  const end = Math.min(many, start + PER_PAGE);
  const places = Array.from({ length: end - start }, (_, i) => (found === null ? start + i : found[start + i]));
  list.replaceChildren(...places.map(item));
  at("explorer-pages").hidden = many <= PER_PAGE;
  at("explorer-back").disabled = page === 0;
  at("explorer-next").disabled = end === many;
  const which = many > PER_PAGE ? `${number(start + 1)} to ${number(end)} of ${number(many)}` : number(many);
  at("explorer-where").textContent = which;
  status.textContent = found === null ? `${which} ${many === 1 ? "query" : "queries"}`
    : many ? `${which} ${many === 1 ? "query found" : "queries found, the best first"}`
    : "No listed query is near to this text. Not everything that people search for is listed.";
}

function search() {
  const text = field.value.slice(0, 200);
  if (text.trim()) {
    const values = measure === null ? null : tables.queries[measure];
    index ??= new Index(names.map((query, place) => [query, values === null ? null : cell(values, place), []]), per);
    found = index.near(text).map(({ place }) => place);
  } else found = null;
  page = 0;
  show();
}

function turn(by, button) {
  page += by;
  show();
  list.scrollIntoView({ block: "start" });
  // A button that can't be pressed any more would lose the focus.
  if (button.disabled) at(by > 0 ? "explorer-back" : "explorer-next").focus();
}

// ---- downloads -------------------------------------------------------------------------------------------------------

/** Write a table as CSV (RFC 4180). */
function csv(name) {
  const columns = Object.entries(tables[name]);
  const rows = tables[name].query.length;
  // A line that is empty would be no row.
  const quoted = (value) => /[",\r\n]/.test(value) || (value === "" && columns.length === 1);
  const text = (value) => (quoted(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const lines = [columns.map(([column]) => column).join(",")];
  for (let row = 0; row < rows; row++) {
    lines.push(columns.map(([column, values]) => text(String((/query$/.test(column) && name !== "queries" ? named(cell(values, row)) : cell(values, row)) ?? ""))).join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

for (const button of document.querySelectorAll("button[data-csv]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const link = part("a");
    const address = URL.createObjectURL(new Blob([csv(button.dataset.csv)], { type: "text/csv;charset=utf-8" }));
    link.href = address;
    link.download = `${button.dataset.csv}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  });
}

field.addEventListener("input", search);
form.addEventListener("submit", (event) => event.preventDefault());
at("explorer-back").addEventListener("click", ({ currentTarget }) => turn(-1, currentTarget));
at("explorer-next").addEventListener("click", ({ currentTarget }) => turn(1, currentTarget));
at("explorer-first")?.remove();
form.hidden = false;
at("explorer-results").hidden = false;
search();
