/** Pieces of a page that are always text, never markup: shared by every page of a site and by a release's own page. */

/** Make an element with text in it. */
export function part(name, text = "", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** Make a text that runs in its own direction; control characters become visible. */
export function isolated(text) {
  const made = part("bdi", text.replace(/[\u0000-\u001f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0))).replace(/[\u007f-\u009f\ufff9-\uffff]/g, "\ufffd"));
  made.dir = "auto";
  return made;
}

/** Make an SVG element with attributes. */
export function drawn(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** Print a share in per cent: two digits behind the point, more where it would be nothing. */
export function percent(share) {
  const hundred = Math.abs(100 * share);
  const digits = hundred >= 0.1 || hundred < 5e-7 ? 2 : hundred >= 0.01 ? 3 : hundred >= 0.0001 ? 4 : 6;
  const said = `${hundred.toFixed(digits)}%`;
  return share < 0 && /[1-9]/.test(said) ? `−${said}` : said;
}

/** Print an interval; noise may have put its ends below zero, where no number of people is. */
export function interval(low, high, say) {
  return `${say(Math.max(0, low)).replace("%", "")} to ${say(Math.max(0, high))}`;
}

/** Draw a bar with its interval on an axis from least to most, in per cent of its width. */
export function bar([value, low, high], least, most) {
  const place = (number) => (100 * (number - least)) / (most - least || 1);
  const [zero, end, from, to] = [0, value, Math.max(0, low), Math.max(0, high)].map(place);
  const made = drawn("svg", { "aria-hidden": "true", height: "16" });
  made.append(drawn("rect", { class: "bar", x: `${Math.min(zero, end)}%`, y: "3", width: `${Math.abs(end - zero)}%`, height: "10", rx: "2" }));
  for (const [x1, x2, y1, y2] of [[from, to, 8, 8], [from, from, 4.5, 11.5], [to, to, 4.5, 11.5]]) {
    made.append(drawn("line", { class: "range", x1: `${x1}%`, x2: `${x2}%`, y1, y2 }));
  }
  const around = part("span", "", "drawn");
  around.append(made);
  return around;
}

/** Print a count with thousands set apart. */
export function number(value) {
  return Math.round(value).toLocaleString("en").replace("-", "−");
}
