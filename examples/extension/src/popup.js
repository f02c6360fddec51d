// The popup: the switch, what is kept, what was sent and what it means, and the account. It makes no request.
import { api, periodAt, read, rolled } from "./state.js";
import { duration, number, upTo } from "./words.js";

const $ = (id) => document.getElementById(id);

/** Make an element; texts never become markup. */
function make(name, text, className) {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

/** Write a record: the query, and under it what was clicked. */
function makeRecord(name, query, url) {
  const element = make(name, "");
  element.append(`${query} `, make("span", `→ ${url || "no click"}`, "url"));
  return element;
}

/** Write an entry of the public list. */
function makeNamed([query, url]) {
  return url === undefined ? make("dd", query) : makeRecord("dd", query, url);
}

const time = (seconds) => new Date(1000 * seconds).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

const OUTCOMES = {
  waiting: ["waiting", (entry) => `Made ${time(entry.made)}. It leaves as soon as the collector takes it.`],
  stored: ["sent", (entry) => `The collector accepted it ${time(entry.sent)}.`],
  refused: ["refused", (entry) => `The collector did not take it (status ${entry.status}).`],
  answered: ["sent", () => "It has left; what the collector answered was not noted."],
  dropped: ["not sent", () => "The task was changed before the collector had it."],
  none: ["nothing sent", () => "The collector asked nothing of this device in this period."],
  UnknownValue: ["nothing sent", () => "The search is not on the public list, and this task takes no others."],
  AnotherHeadList: ["nothing sent", () => "The public list changed after this period's report was made."],
};

const TROUBLES = {
  NotReady: "The collector has not published its list yet; it is tried again.",
  TaskInvalid: "The collector serves something that is not the task you agreed to. Nothing is sent.",
};

function showEntry(entry) {
  const box = make("article", "", "entry");
  const [word, sentence] = OUTCOMES[entry.outcome];
  const line = make("p", "", "outcome");
  line.append(make("span", word, `tag ${entry.outcome}`), ` ${sentence(entry)}`);
  box.append(line);
  const facts = make("dl", "");
  const fact = (name, ...values) => facts.append(make("dt", name), ...values);
  const { record, meaning } = entry;
  fact("Your search", record ? makeRecord("dd", record.query, record.url) : make("dd", "none in that period"));
  if (record) facts.lastChild.append(make("small", `chosen by chance of ${record.count} in that period; it stays here`));
  if (meaning) {
    const [query, url] = meaning.counts;
    if (query !== record?.query || url !== record?.url) fact("Counts as", makeNamed(meaning.counts));
    if (meaning.names.length) {
      fact("The report names", ...meaning.names.map(makeNamed));
      if (meaning.more) facts.append(make("dd", `and ${meaning.more} more`));
    } else if (meaning.truthful === false) fact("The report names", make("dd", "nothing"));
  }
  box.append(facts);
  if (meaning) {
    const named = meaning.truthful ? "is among what it names; nobody else can tell" : "is not among what it names";
    const truth = meaning.truthful === null ? "" : ` This time yours ${named}.`;
    const repeated = "it repeats an answer given before or, once the lifetime is used up, says nothing about you";
    const free = meaning.paid ? "" : ` It cost nothing more: ${repeated}.`;
    box.append(make("p", meaning.how + truth, "note"), make("p", meaning.bound + free, "note"));
  }
  if (entry.report) {
    const raw = make("details", "");
    const text = make("pre", entry.report);
    text.tabIndex = 0;
    raw.append(make("summary", "The exact bytes"), text);
    box.append(raw);
  }
  return box;
}

function showStatus({ on, settings, trouble }) {
  $("switch").disabled = !settings;
  $("switch").checked = on;
  $("switch-word").textContent = on ? "On" : "Off";
  const status = $("status");
  if (!settings) status.textContent = "Not set up yet: choose a collector, a task and a site in the settings.";
  else if (!on) status.textContent = "Off: nothing is watched, and nothing is sent.";
  else status.textContent = `Watches searches on ${settings.site} for “${settings.name}”.`;
  if (on && trouble) status.append(make("span", TROUBLES[trouble] ?? "The collector can't be reached; it is tried again.", "trouble"));
}

function showKept({ on, settings, next, due, ...state }) {
  $("kept").hidden = !on || !settings;
  if ($("kept").hidden) return;
  const { running, ended } = rolled(state, periodAt(settings, Date.now() / 1000));
  $("kept-record").replaceChildren(...(running ? makeRecord("p", running.query, running.url).childNodes : ["No search in this period yet."]));
  const several = `Chosen by chance of ${running?.count} in this period; the others are not kept. `;
  const which = !running ? "" : running.count > 1 ? several : "The only search in this period. ";
  const waiting = ended ? `To be reported now: ${ended.query} → ${ended.url || "no click"}. ` : "";
  const rule = `Once per ${duration(settings.period)} a randomised report leaves, whether you searched or not`;
  $("kept-note").textContent = `${which}${waiting}${rule}; the next one is made ${time(due)}.`;
}

let shown = null;

function showHistory(history) {
  // What has not changed stays as it is, opened or not.
  if (shown === JSON.stringify(history)) return;
  shown = JSON.stringify(history);
  $("latest").hidden = !history.length;
  const entries = history.map(showEntry);
  $("latest-entry").replaceChildren(...entries.slice(0, 1));
  $("earlier").hidden = entries.length < 2;
  $("earlier").firstElementChild.textContent = `Earlier periods (${entries.length - 1})`;
  $("earlier-entries").replaceChildren(...entries.slice(1));
}

function showAccount({ settings, account }) {
  $("account").hidden = !settings;
  if (!settings) return;
  const { spent, lifetime } = account ?? { spent: 0, lifetime: number(settings.lifetime) };
  const meter = $("account-meter");
  meter.max = lifetime;
  meter.value = spent;
  meter.textContent = `${upTo(spent)} of ${upTo(lifetime)}`;
  $("account-note").textContent = [
    `ε ${upTo(spent)} of ${upTo(lifetime)} in this device's life.`,
    `A new answer costs ${upTo(number(settings.epsilon))}; a search that comes back gets the same answer and costs nothing.`,
    "At the end reports say nothing about you.",
  ].join(" ");
}

async function show() {
  const state = await read();
  showStatus(state);
  showKept(state);
  showHistory(state.history);
  showAccount(state);
}

$("switch").addEventListener("change", () => api.runtime.sendMessage({ action: "switch", on: $("switch").checked }));
$("settings").addEventListener("click", () => api.runtime.openOptionsPage());
$("forget").addEventListener("click", () => $("sure").showModal());
$("sure").addEventListener("close", () => {
  if ($("sure").returnValue === "yes") api.runtime.sendMessage({ action: "forget" });
});
api.storage.onChanged.addListener(show);
show();
