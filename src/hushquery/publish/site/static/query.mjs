/** The page of one query, or of several side by side: their history over all releases, as a chart and as a table. */
import { historyFile, loaded } from "./data.mjs";
import { keepForLater } from "./keep.mjs";
import { bar, drawn, interval, isolated, number, part, percent } from "./pages.mjs";
import { SearchIndex } from "./search.mjs";

const MOST_COMPARED = 5;
const SUGGESTED = 6;
const [CHART_HEIGHT, CHART_LEFT, CHART_RIGHT, CHART_TOP, CHART_BOTTOM] = [300, 58, 14, 12, 30];
// Each line also has a shape of its own, for those who can't tell the colours apart.
const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-4 -4h8v8h-8z", "M0 -5.5L5.5 0L0 5.5L-5.5 0z", "M0 -5L5 4H-5z", "M0 5L5 -4H-5z"];

export async function queryPage() {
  const at = (id) => document.getElementById(id);
  const [form, field, status, suggested, chosen] = ["compare", "compare-text", "compare-status", "suggested", "chosen"].map(at);
  let data;
  let search;
  try {
    data = await loaded("index.js");
    search = new SearchIndex(data);
  } catch {
    at("needs-script").textContent = "The list can't be loaded: there is no network, and this browser has not kept it from an earlier visit.";
    return;
  }
  at("needs-script").remove();
  form.hidden = false;
  const say = data.measure === "share" ? percent : number;
  const overTime = data.releases.length > 1 ? " over time" : "";
  let shown = [];
  let asking = 0;

  const asked = () => [...new Set(new URLSearchParams(location.hash.slice(1)).getAll("q"))].slice(0, MOST_COMPARED);
  const go = (queries) => { location.hash = queries.map((query) => `q=${encodeURIComponent(query)}`).join("&"); };

  /** Find what all releases say of a query: `{ query, series, pages, next }`. */
  async function history(query) {
    const rows = await loaded(historyFile(query, data.history.shards));
    const [, series, pages, next] = rows.find(([name]) => name === query) ?? [query, data.releases.map(() => null), [], []];
    // Noise may have put ends below zero, where no number of people is.
    return { query, series: series.map((entry) => entry && entry.map((end, place) => (place ? Math.max(0, end) : end))), pages, next };
  }

  async function update() {
    const wanted = asked();
    const queries = wanted.length ? wanted : search.frequent(2).map(({ query }) => query);
    const mine = ++asking;
    try {
      const found = await Promise.all(queries.map(history));
      if (mine !== asking) return;  // the address has changed meanwhile
      shown = found;
    } catch {
      status.textContent = "The history of this query can't be loaded: there is no network, and this browser has not kept it.";
      return;
    }
    chosen.replaceChildren(...shown.map(({ query }, place) => chip(query, place)));
    const title = part("h2", shown.length > 1 ? `Compared${overTime}` : "");
    title.id = "compared";
    if (shown.length === 1) title.append(isolated(shown[0].query), overTime);
    at("compared").replaceWith(title);
    at("numbers").replaceChildren(table());
    at("around").replaceChildren(...(shown.length === 1 ? around(shown[0]) : []));
    at("result").hidden = !shown.length;
    const missing = shown.filter(({ series }) => series.every((entry) => entry === null)).map(({ query }) => query);
    status.textContent = missing.length ? `Not listed in any release: ${missing.join(", ")}. Not everything that people search for is listed.` : "";
    draw();
  }

  function chip(query, place) {
    const made = part("li", "", `chip series-${place}`);
    const button = part("button", "×");
    button.type = "button";
    button.setAttribute("aria-label", `Remove ${query}`);
    button.addEventListener("click", () => { go(shown.map((one) => one.query).filter((one) => one !== query)); field.focus(); });
    const sign = drawn("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" });
    sign.append(drawn("path", { d: SHAPES[place], class: "mark" }));
    made.append(sign, isolated(query));
    if (shown.length > 1) made.append(button);
    return made;
  }

  /** A number with its interval, or what is known of a query that a release does not list. */
  function told(entry, release) {
    const made = part("td", "", "much");
    if (entry === null) {
      const least = release.most_missing;
      made.append(part("span", least === null ? "not listed" : `not listed: at most ${number(least)}`, "soft"));
    } else if (!entry.length) made.append("listed");
    else made.append(`${say(entry[0])} `, part("small", interval(entry[1], entry[2], say)));
    return made;
  }

  function table() {
    const made = part("table");
    const head = part("tr");
    const name = (text, kind) => { const cell = part("th", text); cell.scope = kind; return cell; };
    head.append(name("Release", "col"), ...shown.map(({ query }) => { const cell = name("", "col"); cell.className = "much"; cell.append(isolated(query)); return cell; }));
    const rows = data.releases.map((release, place) => {
      const row = part("tr");
      // A line may end between two dates, not within one.
      const dates = release.name.split(/(?<= to) /).flatMap((text) => [part("span", text, "much"), " "]);
      const label = name("", "row");
      label.append(...dates);
      row.append(label, ...shown.map(({ series }) => told(series[place], release)));
      return row;
    });
    const [top, body] = [part("thead"), part("tbody")];
    top.append(head);
    body.append(...rows.reverse());
    made.append(top, body);
    return made;
  }

  function around({ pages, next }) {
    const group = (title, rows) => {
      const items = part("ul", "", "plain");
      for (const [text, value] of rows) {
        const item = part("li");
        item.append(text ? isolated(text) : part("i", "no click"), " ", part("small", say(value)));
        items.append(item);
      }
      return rows.length ? [part("h3", title), items] : [];
    };
    return [...group("Pages that people clicked on, in the latest release", pages), ...group("What people searched for next, in the latest release", next)];
  }

  // ---- the chart -----------------------------------------------------------------------------------------------------

  function draw() {
    const chart = at("chart");
    const points = shown.flatMap(({ series }) => series.filter((entry) => entry?.length));
    chart.hidden = !points.length;
    if (!points.length) return;
    if (data.releases.length === 1) {
      chart.replaceChildren(barsOf(points));
      return;
    }
    const width = Math.max(260, chart.clientWidth);
    const most = Math.max(...points.map(([, , high]) => high)) || 1;
    const least = Math.min(0, ...points.map(([, low]) => low));
    const days = data.releases.map(({ start, end, created }) => Date.parse(end ?? start ?? created));
    const even = days.some(Number.isNaN) || new Set(days).size < days.length;
    const where = even ? days.map((_, place) => place) : days;
    const reach = where.at(-1) - where[0];
    const x = (place) => CHART_LEFT + (width - CHART_LEFT - CHART_RIGHT) * (reach ? (where[place] - where[0]) / reach : 0.5);
    const y = (value) => CHART_TOP + (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM) * (1 - (value - least) / (most - least));
    const svg = drawn("svg", { width, height: CHART_HEIGHT, role: "img", "aria-labelledby": "compared", "aria-describedby": "chart-about" });
    for (const tick of ticks(least, most)) {
      svg.append(drawn("line", { class: "axis", x1: CHART_LEFT, x2: width - CHART_RIGHT, y1: y(tick), y2: y(tick) }));
      svg.append(labelled(say(tick).replace(/\.?0+%$/, "%"), CHART_LEFT - 8, y(tick) + 4, "end"));
    }
    const every = Math.ceil(days.length / Math.max(1, Math.floor((width - CHART_LEFT) / 100)));
    data.releases.forEach(({ end, start, created }, place) => {
      if ((days.length - 1 - place) % every) return;
      const anchor = days.length === 1 ? "middle" : place === days.length - 1 ? "end" : place === 0 ? "start" : "middle";
      svg.append(labelled(end ?? start ?? created, x(place), CHART_HEIGHT - 8, anchor));
    });
    shown.forEach(({ series }, place) => {
      const group = drawn("g", { class: `series-${place}` });
      for (const run of runs(series)) {
        const [forth, back] = [run.map((i) => `${x(i)} ${y(series[i][2])}`), run.map((i) => `${x(i)} ${y(series[i][1])}`).reverse()];
        if (run.length > 1) group.append(drawn("path", { class: "band", d: `M${[...forth, ...back].join("L")}z` }));
        group.append(drawn("path", { class: "trend", d: `M${run.map((i) => `${x(i)} ${y(series[i][0])}`).join("L")}` }));
        for (const i of run) {
          group.append(drawn("line", { class: "interval", x1: x(i), x2: x(i), y1: y(series[i][1]), y2: y(series[i][2]) }));
          group.append(drawn("path", { class: "mark", d: SHAPES[place], transform: `translate(${x(i)} ${y(series[i][0])})` }));
        }
      }
      svg.append(group);
    });
    chart.replaceChildren(svg);
  }

  /** One release has no line over time: a bar for each query. */
  function barsOf(points) {
    const [least, most] = [Math.min(0, ...points.map(([value]) => value)), Math.max(0, ...points.flat())];
    const list = part("ol", "", "bars");
    shown.filter(({ series: [entry] }) => entry?.length).forEach(({ query, series: [entry] }) => {
      const [item, label, value] = [part("li"), part("span", "", "label"), part("span", `${say(entry[0])} `, "value")];
      label.append(isolated(query));
      value.append(part("small", interval(entry[1], entry[2], say)));
      item.append(label, bar(entry, least, most), value);
      list.append(item);
    });
    return list;
  }

  function labelled(text, x, y, anchor) {
    const made = drawn("text", { x, y, "text-anchor": anchor });
    made.textContent = text;
    return made;
  }

  /** The places of releases that list a query, where they follow on one another. */
  function runs(series) {
    const found = [];
    series.forEach((entry, place) => {
      if (!entry?.length) return;
      if (place && series[place - 1]?.length) found.at(-1).push(place);
      else found.push([place]);
    });
    return found;
  }

  /** Round numbers for about four lines across the chart. */
  function ticks(least, most) {
    const rough = (most - least) / 4;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * ([1, 2, 5, 10].find((times) => times * unit >= rough) ?? 10);
    const found = [];
    for (let tick = Math.ceil(least / step); tick * step <= most; tick++) found.push(tick * step);
    return found;
  }

  // ---- choosing ------------------------------------------------------------------------------------------------------

  const add = (query) => {
    const queries = asked().length ? asked() : [];
    if (queries.length === MOST_COMPARED && !queries.includes(query)) {
      status.textContent = `At most ${MOST_COMPARED} queries can be compared. Remove one first.`;
      return;
    }
    field.value = "";
    suggest();
    go([...queries, query]);
    field.focus();
  };
  const suggest = () => {
    const near = field.value.trim() ? search.search(field.value, SUGGESTED).queries : [];
    suggested.replaceChildren(...near.map(({ query, value }) => {
      const [item, button] = [part("li"), part("button", "", "like-link")];
      button.type = "button";
      button.append(isolated(query));
      button.addEventListener("click", () => add(query));
      item.append(button, " ", part("small", value === null ? "" : say(value)));
      return item;
    }));
    return near;
  };
  field.addEventListener("input", suggest);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return;
    const exact = await history(text).catch(() => null);
    const near = suggest();
    if (exact?.series.some((entry) => entry !== null)) add(text);
    else if (near.length) add(near[0].query);
    else status.textContent = "No listed query is near to this text. Not everything that people search for is listed.";
  });
  addEventListener("hashchange", update);
  addEventListener("resize", draw);
  await update();
  keepForLater();
}
