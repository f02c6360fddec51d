/** Start what a page needs. */
import { queryPage } from "./query.mjs";
import { searchPage } from "./search-page.mjs";
import { trendsPage } from "./trends.mjs";

if (document.getElementById("filter")) trendsPage();
if (document.getElementById("search")) searchPage();
if (document.getElementById("compare")) queryPage();
