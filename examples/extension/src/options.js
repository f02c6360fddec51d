// The settings: which collector, which task, which site. The worker checks the task before anything is kept.
import { api, read } from "./state.js";
import { duration, number, upTo } from "./words.js";

const $ = (id) => document.getElementById(id);
const FIELDS = ["collector", "task", "site", "parameter"];

const PROBLEMS = {
  collector: "The collector is an address such as https://collect.example.org, without a path.",
  task: "A task id has 64 hexadecimal digits.",
  site: "The site is a match pattern such as https://search.example.org/*.",
  parameter: "The name of the query is missing.",
  refused: "Without your permission for the site and the collector nothing can be done.",
  Unavailable: "The collector can't be reached, or has no such task.",
  NotReady: "The collector has not published its list yet. Try again later.",
  TaskInvalid: "What the collector serves is not the task of this id, or it promises too little. Nothing was saved.",
  OtherKind: "This task does not ask about searches.",
  NoPeriod: "This task has no period; this extension reports once per period.",
  SeveralRecords: "This task asks for several records in a period; this extension reports one.",
};

/** Read the form; gives the name of the field that is wrong, if one is. */
function entered() {
  const settings = Object.fromEntries(FIELDS.map((name) => [name, $(name).value.trim()]));
  settings.collector = settings.collector.replace(/\/$/, "");
  settings.task = settings.task.toLowerCase();
  const checks = {
    collector: () => /^https?:$/.test(new URL(settings.collector).protocol) && new URL(settings.collector).origin === settings.collector,
    task: () => /^[0-9a-f]{64}$/.test(settings.task),
    site: () => /^https?:\/\/[^/*?#\s]+\/\S*$/.test(settings.site),
    parameter: () => settings.parameter !== "",
  };
  const wrong = FIELDS.find((name) => {
    try {
      return !checks[name]();
    } catch {
      return true;
    }
  });
  return { settings, wrong };
}

/** The hosts to ask permission for; such patterns have no port. */
function hosts({ collector, site }) {
  return [collector, site].map((address) => `${address.replace(/^(https?:\/\/[^/:]+).*$/, "$1")}/*`);
}

function say(problem, done = "") {
  $("said").textContent = problem ? (PROBLEMS[problem] ?? PROBLEMS.Unavailable) : done;
  $("said").className = problem ? "trouble" : "";
  for (const name of FIELDS) $(name).toggleAttribute("aria-invalid", name === problem);
  if (FIELDS.includes(problem)) $(problem).focus();
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { settings, wrong } = entered();
  if (wrong) return say(wrong);
  // Browsers ask only right after a click, so this comes before anything that waits.
  const allowed = await api.permissions.request({ origins: hosts(settings) }).catch(() => false);
  if (!allowed) return say("refused");
  say("", "Checking…");
  const { problem } = await api.runtime.sendMessage({ action: "configure", ...settings });
  const { on } = await read();
  say(problem, on ? "Saved." : "Saved. It is off until you switch it on in the popup.");
  await show();
});

async function show() {
  const { settings } = await read();
  $("promise").hidden = !settings;
  if (!settings) return;
  const epsilon = number(settings.epsilon);
  const facts = {
    Name: settings.name,
    "Asked are": settings.population,
    "One report per": duration(settings.period),
    "It tells at most": `ε = ${upTo(epsilon)}: a report is at most ${upTo(Math.exp(epsilon), 1)} times as likely with one search as with any other`,
    "In this device's life": `ε = ${upTo(number(settings.lifetime))} in all; then reports say nothing`,
    Mechanism: settings.mechanism,
  };
  $("facts").replaceChildren(
    ...Object.entries(facts).flatMap(([name, value]) => {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      text.textContent = value;
      return [term, text];
    }),
  );
}

const { settings } = await read();
for (const name of FIELDS) $(name).value = settings?.[name] ?? (name === "parameter" ? "q" : "");
await show();
