/** The privacy page: a value is randomised a hundred times before the reader's eyes. */
import { keepForLater } from "./keep.mjs";
import { drawn, isolated, part } from "./pages.mjs";

const TIMES = 100;
const SHOWN = 8;
const at = (id) => document.getElementById(id);
const form = at("try");

keepForLater();
if (form) start().catch(() => {
  at("needs-script").textContent = "This part can't run here: the browser has no storage or no safe randomness for pages (private window, plain http), or the task can't be loaded.";
});

async function start() {
  const { Cells, law, loadTask, randomise } = await import("./demonstration.mjs");
  const configuration = await loadTask("./task.json");
  const cells = new Cells(configuration);
  const field = at("try-text");
  const page = at("try-page");
  const known = [...new Set(cells.names.filter(Boolean).map(([text]) => text))];
  at("try-known").append(...known.map((text) => { const made = part("option"); made.value = text; return made; }));
  field.value = known[0] ?? "";

  /** Offer the pages that are listed with the query, and any other. */
  const offer = () => {
    if (!page) return;
    const listed = cells.names.filter((name) => name && name[1] !== null && cells.of(field.value, name[1]) === cells.of(name[0], name[1]));
    const choices = [...listed.map(([, url]) => [url, url || "no click"]), ["https://another.example/", "any other page"]];
    page.replaceChildren(...choices.map(([url, told]) => { const made = part("option", told); made.value = url; return made; }));
  };
  field.addEventListener("input", offer);
  offer();

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    if (button.getAttribute("aria-disabled") === "true") return;
    // Not `disabled`: the focus would be lost.
    button.setAttribute("aria-disabled", "true");
    try {
      const tell = (done) => { if (done % 20 === 0) at("try-status").textContent = `Randomised ${done} times …`; };
      const made = await randomise(configuration, field.value, page ? page.value : undefined, TIMES, tell);
      show(made, law(configuration.description));
    } catch (error) {
      at("try-result").hidden = true;
      at("try-status").textContent = error?.code === "UnknownValue" ? "This value is not on the list, and the task takes no others: nothing would be sent." : "It can't be randomised here: the browser has no storage for this page.";
    } finally {
      button.removeAttribute("aria-disabled");
    }
  });
  at("needs-script").remove();
  form.hidden = false;
}

/** Name a cell: a query with its page, a value, or everything else. */
function named(name) {
  if (name === null) return [part("i", "anything else")];
  const made = [isolated(name[0])];
  if (name.length > 1) made.push(" ", name[1] ? small(isolated(name[1])) : small(part("i", name[1] === null ? "another page" : "no click")));
  return made;
}

function small(node) {
  const made = part("small", "", "page");
  made.append(node);
  return made;
}

function show({ counts, absent, report, cell, cells }, { chance }) {
  const took = TIMES - absent;
  const expected = (other) => took * chance(cell, other);
  const others = counts.map((_, other) => other).filter((other) => other !== cell).sort((a, b) => counts[b] - counts[a] || a - b);
  const first = others.slice(0, SHOWN);
  const rest = others.slice(SHOWN);
  const most = Math.max(1, ...counts, expected(cell));
  const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);
  const rows = [cell, ...first].map((one) => row(named(cells.names[one]), counts[one], expected(one), most, one === cell));
  if (rest.length) {
    const each = (of) => sum(rest, of) / rest.length;
    rows.push(row([part("i", `each of ${rest.length} others, on average`)], each((one) => counts[one]), each(expected), most, false));
  }
  const list = part("ol", "", "bars outcomes");
  list.append(...rows);
  const legend = part("p", "", "legend");
  legend.append(part("span", "how often it came out", "of-bar"), part("span", "how often it should on average", "of-tick"));
  at("try-chart").replaceChildren(legend, list);
  at("try-bytes").textContent = report === null ? "nothing: this device took no part" : JSON.stringify(report, null, 1);
  const whose = cell === cells.wildcard ? "Your value is not on the list, so the device randomises “anything else”. That" : "Your value";
  const left = absent ? ` ${absent} devices were not drawn to take part and would send nothing.` : "";
  const false_ = sum(others, (one) => counts[one]);
  at("try-status").textContent = `${whose} was named by ${counts[cell]} of ${took} answers (${expected(cell).toFixed(1)} are expected); other values were named ${false_} times.${left} Each device sends one such answer; from it alone nobody can be sure of the value.`;
  at("try-result").hidden = false;
}

function row(label, count, expectation, most, own) {
  const item = part("li", "", own ? "own" : "");
  const name = part("span", "", "label");
  name.append(...label);
  const svg = drawn("svg", { height: 16, "aria-hidden": "true" });
  const place = (value) => `${((100 * value) / most).toFixed(2)}%`;
  svg.append(
    drawn("rect", { class: "bar", y: 3, width: place(count), height: 10, rx: 2 }),
    drawn("line", { class: "tick", x1: place(expectation), x2: place(expectation), y1: 0, y2: 16 }),
  );
  const chart = part("span", "", "drawn");
  chart.append(svg);
  const value = part("span", `${Number.isInteger(count) ? count : count.toFixed(2)} `, "value");
  value.append(part("small", `expected ${expectation.toFixed(expectation < 10 ? 2 : 1)}`));
  item.append(name, chart, value);
  return item;
}
