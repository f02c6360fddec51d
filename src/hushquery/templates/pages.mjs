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

/** Print a count with thousands set apart. */
export function number(value) {
  return Math.round(value).toLocaleString("en").replace("-", "−");
}
