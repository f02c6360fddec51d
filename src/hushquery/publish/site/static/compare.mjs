/** The first page of a task's site: two periods of a series compared, as computed when the site was built. */
import { keepForLater } from "./keep.mjs";
import { loaded } from "./data.mjs";
import { interval, isolated, part, percent } from "./pages.mjs";
import { trendsPage } from "./trends.mjs";

const at = (id) => document.getElementById(id);

/** Print an average with four digits. */
const average = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 12 }).replace("-", "−");

/** Print a difference with its sign; that of shares in points of per cent. */
function signed(value, measure) {
  const said = measure === "share" ? (100 * value).toFixed(2).replace("-", "−") : average(value);
  return value > 0 ? `+${said}` : said;
}

/** Name a value: a query with its page, or everything else. */
function named(value, kind) {
  if (value === "*") return [part("i", "everything else")];
  if (kind !== "searches") return [isolated(value)];
  const [query, url] = value.split("\t");
  const page = part("small", "", "page");
  page.append(url === undefined ? part("i", "no click") : url === "*" ? part("i", "other pages") : isolated(url));
  return [isolated(query), " ", page];
}

function cell(kind, ...inside) {
  const made = part(kind === "row" || kind === "col" ? "th" : "td", "", kind === "row" ? "" : "much");
  if (made.localName === "th") made.scope = kind;
  made.append(...inside);
  return made;
}

async function comparePeriods() {
  const [form, table] = [at("periods"), at("periods-table")];
  const { kind, measure } = table.dataset;
  const data = await loaded("index.js");
  const print = measure === "share" ? percent : average;

  function show() {
    const chosen = [Number(at("earlier").value), Number(at("later").value)];
    const [from, to] = chosen.sort((a, b) => a - b);
    const changes = data.changes[`${from}-${to}`];
    table.hidden = !changes;
    if (!changes) {
      at("periods-status").textContent = from === to ? "Choose two different periods." : "The task changed between these two periods, so that they can't be compared.";
      return;
    }
    const sure = changes.filter((change) => change && !change[3]).length;
    const many = changes.filter(Boolean).length;
    at("periods-status").textContent = `${data.periods[from].name} and ${data.periods[to].name}: ${sure} of ${many} changed by more than noise.`;
    const number = (point) => (point ? [`${print(point[0])} `, part("small", interval(point[1], point[2], print), "aside")] : [part("span", "not found", "soft")]);
    const rows = data.values.flatMap(({ value, numbers }, place) => {
      if (!numbers[from] && !numbers[to]) return [];
      const change = changes[place];
      const row = part("tr");
      const [low, high] = change ? change.slice(1).map((end) => signed(end, measure)) : [];
      const said = cell("", ...(change ? [part(change[3] ? "span" : "b", signed(change[0], measure)), " ", part("small", `${low} to ${high}`), " ", part("small", change[3] ? "maybe noise" : "surely changed")] : []));
      if (change) said.className = change[3] ? "much soft" : `much ${change[0] > 0 ? "up" : "down"}`;
      row.append(cell("row", ...(measure === "share" ? named(value, kind) : ["Average"])), cell("", ...number(numbers[from])), cell("", ...number(numbers[to])), said);
      return [row];
    });
    const [made, head, body, top] = ["table", "thead", "tbody", "tr"].map((name) => part(name));
    made.className = "numbers";
    const [start, end] = [from, to].map((place) => data.periods[place].name.split(" to ")[0]);
    const heads = ["", start, end, measure === "share" ? "Change, in points" : "Change"];
    top.append(...heads.map((text, place) => (place === 0 ? part("td") : cell("col", text))));
    head.append(top);
    body.append(...rows);
    made.append(head, body);
    table.replaceChildren(made);
  }

  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.querySelector(".without-script").remove();
  form.hidden = false;
  show();
}

keepForLater();
if (at("filter")) trendsPage();
if (at("periods")) comparePeriods();
