"""A log of what engines could disagree about, small, with counts on both sides of low thresholds."""

from __future__ import annotations

from random import Random

import pyarrow as pa

#: Texts in which capitals, composition, blanks, quoting, order or length could differ.
TEXTS = [
    "plain words",
    "Plain  WORDS",
    "cafe\u0301 au lait",
    "Café au lait",
    "\u212bngstr\u00f6m",
    "ångström",
    "İstanbul otelleri",
    "istanbul otelleri",
    "STRAẞE",
    "straße",
    "ΟΔΟΣ ΣΑΣ",
    "οδος σας",
    "οδοσ σασ",
    "J\u030c",
    "\u01f0",
    "ﬁn ǅ",
    "天气 预报",
    "😀 emoji 👩\u200d👩\u200d👧",
    "😀",
    "\uffee half",  # after the astral ones in UTF-16, before them by code point
    "𝔘nicode",
    'it\'s "quoted" `so` \\n \\x41 \\',
    "100% _like_ [a-z]* $1 ^$",
    "tab\there\x0bvertical\x0cform",
    "v for vendetta f",
    "zero\u200bwidth\ufeff joiner\u200c\u200d",
    "\x01control\x7f\x85next\u2028line\u2029",
    " \u00a0 both ends \u3000 ",
    "Zürich",
    "Zurich",
    "zu\u0308rich",
    "ähnlich",
    "a-b",
    "a b",
    "ab",
    "A_b",
    "résumé",
    "resume",
    "co-op",
    "coop",
    "؛ عربى ١٢٣",
    "हिन्दी २",
    "c++ && d || e; -- comment",
    "new\nline at end\n",
    "ending blank \r\n",
]
#: Texts that are left out: nothing in them, or something personal.
LEFT_OUT = [
    "",
    " ",
    "\t\n",
    "\u3000\u200b",
    "joe@example.com",
    "tel 020 7946 0958",
    "card ４１１１ 1111 1111 1111",
    None,
]
#: URLs in many writings; `\u017f` and `\u212a` are letters s and k to some.
URLS = [
    "HTTP://Example.COM/",
    "http://example.com",
    "https://user:pw@Example.org:443/Path#frag",
    "http://ΟΔΟΣ.example/ΟΔΟΣ",
    "http://İ.example/İ",
    "WWW.Example.net \n",
    "http://example.com/a b",
    "http://example.com/?Token=abc",
    "http://example.com/?\u017fid=abc",
    "http://example.com/?api\u212aey=abc",
    "http://example.com/?api_\u212aey=abc",
    "http://[2001:DB8::1]:80/x",
    "http://example.com/deadbeefdeadbeef00",
    "-",
    "-\n",
    "",
    "#top",
    None,
]
#: Times that are text, in every form that is documented, and some that are none.
TIMES = [
    "2006-03-01 10:00:00",
    "2006-03-01T10:00:00Z",
    "2006-03-01 12:00:00.5+02:00",
    "2006-03-01",
    " 2006-03-02 08:30 ",
    "1141207200",
    "1141207200000",
    "1141207200.25",
    "0.0000005",
    "-1.5",
    "2006-02-30",
    "soon",
    "",
    None,
]


def hard_log(users: int = 120) -> pa.Table:
    """Give the rows: each text has its number of holders, users are of all writings, and many times are equal."""
    chosen = Random(2006)
    rows: dict[str, list[object]] = {"user": [], "query": [], "time": [], "url": [], "rank": []}

    def add(who: int, query: object, when: object) -> None:
        names = [f"u{who}", f"Ü{who}", f" v{who} f ", f"{who}", f"'{who}\""]
        rows["user"].append(names[who % len(names)])
        rows["query"].append(query)
        rows["time"].append(when)
        rows["url"].append(chosen.choice(URLS))
        rows["rank"].append(chosen.choice(["1", " 2 ", "x", "", None, "+3", "4.0"]))

    for number, text in enumerate([*TEXTS, *(f"query {i}" for i in range(40))]):
        for holder in range(3 + (number * 7) % 40):
            who = (7 * number + 13 * holder) % users
            add(who, text, chosen.choice(TIMES[:5]) if chosen.random() < 0.8 else chosen.choice(TIMES))
    for number, text in enumerate(LEFT_OUT * 6):
        add((11 * number) % (users + 5), text, chosen.choice(TIMES))
    for names in ("", " ", None):
        add(0, "nobody's", TIMES[0])
        rows["user"][-1] = names
    kinds = dict.fromkeys(rows, pa.string())
    table = pa.table(rows, schema=pa.schema(kinds))
    order = list(range(table.num_rows))
    chosen.shuffle(order)
    return table.take(order)
