/** The privacy page: what a device would send for a value, and the same a hundred times before the reader's eyes. */
import { keepForLater } from "./keep.mjs";
import { drawn, isolated, part } from "./pages.mjs";

const TIMES = 100;
const SHOWN = 8;
const STRIPS = 3;
const ACROSS = 64;
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
  const known = [...new Set(cells.names.filter((name) => name && !cells.unlisted).map(([text]) => text))];
  at("try-known").append(...known.map((text) => { const made = part("option"); made.value = text; return made; }));
  const value = () => (field.type === "number" ? Number(field.value || NaN) : field.value);
  if (!cells.unlisted) field.value = known[0] ?? "";

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
      const made = await randomise(configuration, value(), page ? page.value : undefined, TIMES, tell);
      const other = configuration.description.name === "rappor" && await randomise(configuration, crypto.randomUUID(), undefined, STRIPS);
      at("try-sent").replaceChildren(...sent(made, configuration.description, law(configuration.description).speaks));
      if (other) showBits(made, other, configuration.description, law(configuration.description));
      else show(made);
      at("try-bytes").textContent = made.report === null ? "nothing: this device took no part" : JSON.stringify(made.report, null, 1);
      at("try-result").hidden = false;
    } catch (error) {
      at("try-result").hidden = true;
      const refused = ["UnknownValue", "Usage"].includes(error?.code);
      at("try-status").textContent = refused ? (form.dataset.refused ?? "") : "It can't be randomised here: the browser has no storage for this page.";
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

/** Say in words what one device would send. */
function sent({ answers: [answer], cells }, { name, d, m, k }, speaks) {
  if (answer === undefined) return ["A device with your answer was not drawn to take part: it would send nothing."];
  const says = (text, ...more) => ["Your answer would be sent as ", part("b", text), ...more];
  if (name === "onebit") return says(`${answer}`, ": a single bit, which is more often 1 the larger the number is.");
  if (name === "rappor") return says(`group ${answer[0] + 1} of ${m}`, ` and the ${k} bits of the first strip below.`);
  if (name === "dbitflip") {
    const bits = answer.slice(0, d).map((bucket, i) => `${cells.names[bucket][0]}: ${answer[d + i] ? "yes" : "no"}`);
    return says(bits.join(", "), ". The device drew these ranges once, whatever its number is.");
  }
  const cited = speaks(answer);
  const words = cited.slice(0, SHOWN).flatMap((cell) => [", ", ...named(cells.names[cell])]).slice(1);
  const more = cited.length > SHOWN ? [` and ${cited.length - SHOWN} more`] : [];
  const own = part("b");
  own.append(...(cited.length ? words : ["no value at all"]));
  return ["Your answer would be sent as ", own, ...more, cited.length > 1 ? ": it names all of these, and says no more about any of them." : "."];
}

function show({ counts, expected, absent, cell, cells }) {
  const took = TIMES - absent;
  const all = [...counts.keys()];
  const others = cell === undefined ? all : all.filter((other) => other !== cell).sort((a, b) => counts[b] - counts[a] || a - b);
  const first = others.slice(0, SHOWN);
  const rest = others.slice(SHOWN);
  const own = cell === undefined ? [] : [cell];
  const most = Math.max(1, ...counts, ...[...own, ...first].map(expected));
  const sum = (list, of) => list.reduce((whole, one) => whole + of(one), 0);
  const rows = [...own, ...first].map((one) => row(named(cells.names[one]), counts[one], expected(one), most, one === cell));
  if (rest.length) {
    const each = (of) => sum(rest, of) / rest.length;
    rows.push(row([part("i", `each of ${rest.length} others, on average`)], each((one) => counts[one]), each(expected), most, false));
  }
  const legend = part("p", "", "legend");
  legend.append(part("span", "how often it came out", "of-bar"), part("span", "how often it should on average", "of-tick"));
  at("try-chart").replaceChildren(legend, list(rows));
  const whose = !cells.unlisted && cell === cells.wildcard ? "Your value is not on the list, so the device randomises “anything else”. That" : cells.unlisted ? "Your range" : "Your value";
  const left = absent ? ` ${absent} devices were not drawn to take part and would send nothing.` : "";
  const named_ = cell === undefined
    ? `${counts[1]} of ${took} devices with your number would send 1 (${expected(1).toFixed(1)} are expected).`
    : `${whose} was named by ${counts[cell]} of ${took} answers (${expected(cell).toFixed(1)} are expected); ${cells.unlisted ? "other ranges" : "other values"} were named ${sum(others, (one) => counts[one])} times.`;
  at("try-status").textContent = `${named_}${left} Each device sends one such answer; from it alone nobody can be sure of the value.`;
}

/** Show answers to a text as strips of bits, beside those to a text that nobody typed. */
function showBits({ answers, counts, absent }, { answers: others }, { k, h }, { set, unset }) {
  const strips = (title, several) => {
    const made = part("figure");
    made.append(part("figcaption", title), ...several.map(([, bits]) => strip(bits, k)));
    return made;
  };
  const took = TIMES - absent;
  const on = counts.reduce((sum, one) => sum + one, 0) / Math.max(1, took);
  const expectation = k * unset + k * (1 - (1 - 1 / k) ** h) * (set - unset);
  at("try-chart").replaceChildren(
    strips("Your text, from three devices", answers.slice(0, STRIPS)),
    strips("Another text, from three devices", others),
    list([row(["bits that are on, on average"], Math.round(100 * on) / 100, expectation, k, true)]),
  );
  at("try-status").textContent = `Your text sets ${h === 1 ? "one bit" : `up to ${h} bits`} of ${k}. A bit that it sets is sent as on with a chance of ${set.toFixed(3)}, every other bit with ${unset.toFixed(3)}. Only counts over many devices show which bits are on more often; from one answer nobody can be sure of the text.`;
}

function strip(bits, k) {
  const across = Math.min(k, ACROSS);
  const svg = drawn("svg", { class: "strip", viewBox: `0 0 ${across} ${Math.ceil(k / across)}`, "aria-hidden": "true" });
  for (let bit = 0; bit < k; bit++) {
    const shown = (bits >> BigInt(bit)) & 1n ? "on" : "off";
    svg.append(drawn("rect", { class: shown, x: (bit % across) + 0.08, y: Math.floor(bit / across) + 0.08, width: 0.84, height: 0.84 }));
  }
  return svg;
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
