// The search box of a page that is one file. The matching takes the place of its name below: it defines Index.
"use strict";
(() => {
/* matching.mjs */
  const box = document.getElementById("search"), field = document.getElementById("search-text");
  const status = document.getElementById("search-status"), list = document.getElementById("search-found");
  const data = JSON.parse(document.getElementById("search-data").textContent);
  const index = new Index(data.rows.map(([query, value]) => [query, value, []]), data.per);
  const part = (name, text, kind) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const key = (text) => {
    const made = part("bdi", text);
    made.dir = "auto";
    return made;
  };

  const answer = () => {
    list.replaceChildren();
    if (!field.value.trim()) { status.textContent = ""; return; }
    const near = index.near(field.value.slice(0, 200)), found = near.slice(0, 8), many = near.length;
    for (const { place } of found) {
      const [query, , said, known] = data.rows[place];
      const item = document.createElement("li"), head = document.createElement("p");
      head.append(key(query), part("span", said, "much"));
      item.append(head);
      if (known.length) {
        const pages = document.createElement("ul");
        for (const [page, said] of known) {
          const line = document.createElement("li");
          line.append(page ? key(page) : part("i", "no click"), part("span", said, "much"));
          pages.append(line);
        }
        item.append(pages);
      }
      list.append(item);
    }
    status.textContent = many > 8 ? many + " queries found; the best 8 are shown"
      : many ? many + (many === 1 ? " query found" : " queries found")
      : "No listed query is near to this text; not everything that people search for is listed.";
  };

  field.addEventListener("input", answer);
  field.form.addEventListener("submit", (event) => event.preventDefault());
  box.hidden = false;
  answer();
})();
