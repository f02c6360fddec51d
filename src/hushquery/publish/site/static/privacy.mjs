/** The privacy page: what a device would send for a value, and the same a hundred times before the reader's eyes. */
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
  const [{ loadTask, randomise, ...listed }, unlisted] = await Promise.all([import("./demonstration.mjs"), form.dataset.unlisted && import(form.dataset.unlisted)]);
  const configuration = await loadTask("./task.json");
  const { description } = configuration;
  const how = unlisted ? { cells: new unlisted.Cells(description), ...unlisted.law(description) } : { cells: new listed.Cells(configuration), ...listed.law(description) };
  const { cells } = how;
  const field = at("try-text");
  const page = at("try-page");
  if (!unlisted) {
    const known = [...new Set(cells.names.filter(Boolean).map(([text]) => text))];
    at("try-known").append(...known.map((text) => { const made = part("option"); made.value = text; return made; }));
    field.value = known[0] ?? "";
  }

  /** Offer the pages that are listed with the query, and any other. */
  const offer = () => {
    if (!page) return;
    const fitting = cells.names.filter((name) => name && name[1] !== null && cells.of(field.value, name[1]) === cells.of(name[0], name[1]));
    const choices = [...fitting.map(([, url]) => [url, url || "no click"]), ["https://another.example/", "any other page"]];
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
      const value = field.type === "number" ? Number(field.value || NaN) : field.value;
      const made = await randomise(configuration, value, page ? page.value : undefined, TIMES, how, tell);
      const [answer] = made.answers;
      const words = unlisted ? (one) => unlisted.said(one, description, cells) : (one) => cited(how.speaks(one), cells);
      at("try-sent").replaceChildren(...(answer === undefined ? ["A device with your answer was not drawn to take part: it would send nothing."] : sent(...words(answer))));
      let summary = "";
      if (description.name === "rappor") {
        const other = await randomise(configuration, crypto.randomUUID(), undefined, 3, how);
        const bits = unlisted.bitsOn(made, TIMES, description, how);
        at("try-chart").replaceChildren(...unlisted.strips(made.answers, other.answers, description), list([row(["bits that are on, on average"], bits.on, bits.expected, description.k, true)]));
        summary = bits.words;
      } else {
        show(made, cells);
        summary = unlisted ? unlisted.summary(made, TIMES) : named100(made, cells);
      }
      const left = made.absent ? ` ${made.absent} devices were not drawn to take part and would send nothing.` : "";
      at("try-status").textContent = `${summary}${left} Each device sends one such answer; from it alone nobody can be sure of the value.`;
      at("try-bytes").textContent = made.report === null ? "nothing: this device took no part" : JSON.stringify(made.report, null, 1);
      at("try-result").hidden = false;
    } catch (error) {
      at("try-result").hidden = true;
      at("try-sent").replaceChildren();
      const refused = ["UnknownValue", "Usage"].includes(error?.code);
      at("try-status").textContent = refused ? form.dataset.refused : "It can't be randomised here: the browser has no storage for this page.";
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

function sent(what, ...more) {
  const made = part("b");
  made.append(...[what].flat());
  return ["Your answer would be sent as ", made, ...more];
}

/** Name the cells that an answer speaks for. */
function cited(spoken, { names }) {
  if (!spoken.length) return ["no value at all", "."];
  const words = spoken.slice(0, SHOWN).flatMap((cell) => [", ", ...named(names[cell])]).slice(1);
  const more = spoken.length > SHOWN ? ` and ${spoken.length - SHOWN} more` : "";
  return [words, spoken.length > 1 ? `${more}: it names all of these, and says no more about any of them.` : "."];
}

/** Say how often the value was named. */
function named100({ counts, expected, cell, absent }, { wildcard }) {
  const whose = cell === wildcard ? "Your value is not on the list, so the device randomises “anything else”. That" : "Your value";
  const others = counts.reduce((sum, one) => sum + one, 0) - counts[cell];
  return `${whose} was named by ${counts[cell]} of ${TIMES - absent} answers (${expected(cell).toFixed(1)} are expected); other values were named ${others} times.`;
}

function show({ counts, expected, cell }, { names }) {
  const own = cell === undefined ? [] : [cell];
  const others = [...counts.keys()].filter((other) => other !== cell);
  if (own.length) others.sort((a, b) => counts[b] - counts[a] || a - b);
  const [first, rest] = [others.slice(0, SHOWN), others.slice(SHOWN)];
  const most = Math.max(1, ...counts, ...[...own, ...first].map(expected));
  const rows = [...own, ...first].map((one) => row(named(names[one]), counts[one], expected(one), most, one === cell));
  if (rest.length) {
    const each = (of) => rest.reduce((all, one) => all + of(one), 0) / rest.length;
    rows.push(row([part("i", `each of ${rest.length} others, on average`)], each((one) => counts[one]), each(expected), most, false));
  }
  const legend = part("p", "", "legend");
  legend.append(part("span", "how often it came out", "of-bar"), part("span", "how often it should on average", "of-tick"));
  at("try-chart").replaceChildren(legend, list(rows));
}

function list(rows) {
  const made = part("ol", "", "bars outcomes");
  made.append(...rows);
  return made;
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
