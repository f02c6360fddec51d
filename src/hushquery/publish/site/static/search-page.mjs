/** The search page: answers while one types, from what was loaded with the page. */
import { loaded } from "./data.mjs";
import { keepForLater } from "./keep.mjs";
import { interval, isolated, number, part, percent } from "./pages.mjs";
import { SearchIndex } from "./search.mjs";

export async function searchPage() {
  const at = (id) => document.getElementById(id);
  const [form, field, status, found, pages, queries] = ["search", "search-text", "search-status", "found", "pages", "queries"].map(at);
  at("needs-script").textContent = "Loading the list …";
  try {
    const index = new SearchIndex(await loaded("index.js"));
    const say = index.measure === "share" ? percent : number;
    const cut = index.size < index.released ? ` It knows the ${number(index.size)} most frequent of ${number(index.released)} queries.` : "";
    at("search-about").append(cut);
    at("needs-script").remove();
    form.hidden = false;
    start(index, say);
  } catch {
    at("needs-script").textContent = "The list can't be loaded: there is no network, and this browser has not kept it from an earlier visit. Try again when you are online.";
  }
  at("offline").textContent = (await keepForLater()) ? "This page is kept in your browser: it also works without a network." : "";

  function start(index, say) {
    const answer = () => {
      const typed = field.value.trim() !== "";
      const { urls, queries: near, moreUrls, moreQueries } = typed ? index.search(field.value, 8) : { urls: [], queries: index.frequent(8) };
      at("queries-found").textContent = typed ? "Similar queries" : "Frequent queries";
      pages.replaceChildren(...urls.map((hit) => pageItem(hit, say)));
      queries.replaceChildren(...near.map((hit) => queryItem(hit, say, choose)));
      pages.parentElement.hidden = !urls.length;
      found.hidden = !near.length;
      const many = (list, more, one, several) => `${number(list.length + more)} ${list.length + more === 1 ? one : several}`;
      const first = moreUrls || moreQueries ? " The best 8 of each are shown; more words make them fewer." : "";
      status.textContent = !typed ? "" : !near.length
        ? "No listed query is near to this text. Not everything that people search for is listed."
        : `${many(urls, moreUrls, "page", "pages")} and ${many(near, moreQueries, "query", "queries")} found.${first}`;
    };
    const choose = (query) => {
      field.value = query;
      answer();
      field.focus();
    };
    const fromAddress = () => {
      const asked = new URLSearchParams(location.hash.slice(1)).get("q");
      if (asked !== null) field.value = asked.slice(0, 200);
      answer();
    };
    field.addEventListener("input", answer);
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", fromAddress);
    addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== field && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        field.select();
        field.focus();
      }
    });
    fromAddress();
    field.focus({ preventScroll: true });
  }
}

/** A page becomes a link only where its address is one of the web. */
function pageItem({ url, value, queries: from }, say) {
  const item = part("li");
  const web = /^https?:\/\//i.test(url) && URL.canParse(url);
  const name = web ? part("a") : part("span");
  if (web) {
    name.href = url;
    name.rel = "noreferrer noopener";
  }
  name.append(isolated(url));
  const after = part("p", "after ", "soft");
  from.slice(0, 3).forEach((query, i) => after.append(i ? ", " : "", isolated(query)));
  if (from.length > 3) after.append(` and ${from.length - 3} more`);
  item.append(line(name, say(value)), after);
  return item;
}

function queryItem({ query, value, low, high, why }, say, choose) {
  const item = part("li");
  const button = part("button", "", "like-link");
  button.type = "button";
  button.append(isolated(query));
  button.addEventListener("click", () => choose(query));
  const history = part("a", "compare", "much");
  history.href = `query.html#q=${encodeURIComponent(query)}`;
  const told = value === null ? "" : say(value);
  const between = value === null ? "" : interval(low, high, say);
  const about = part("p", [why, between].filter(Boolean).join(", "), "soft");
  about.append(about.textContent ? " · " : "", history);
  item.append(line(button, told), about);
  return item;
}

function line(name, told) {
  const made = part("p", "", "hit");
  made.append(name, part("span", told, "much"));
  return made;
}
