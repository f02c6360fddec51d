"""The templates: whatever strangers write comes out as text, in every one of them; and nothing else writes markup."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pyarrow as pa
import pytest
from markdown_it import MarkdownIt

from estimate_releases import FIRST, configuration, period, weeks
from estimate_releases import TASKS as KINDS
from hushquery.cli import demo
from hushquery.cli.look import page_values
from hushquery.collect.http import setup
from hushquery.collect.http.admin import operator_page
from hushquery.collect.http.pages import Pages
from hushquery.core.budget import Budget, Unit
from hushquery.core.estimates import Estimates
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.curator.advice import advise
from hushquery.log import Defect, Look
from hushquery.log.detect import Column
from hushquery.publish import SearchIndex, find
from hushquery.publish.site import build_site
from hushquery.release.record import nist_text, registry_text
from hushquery.templates import markdown, render, shown
from site_files import LEDGER, task_of
from small_releases import private_hybrid, release_of, shares_of, whole_release

SOURCE = Path(__file__).parents[1] / "src" / "hushquery"
TEMPLATES = sorted(
    path.relative_to(SOURCE / "templates").as_posix()
    for path in (SOURCE / "templates").rglob("*")
    if path.suffix in (".html", ".md", ".xml")
)
HARMLESS = " and so on"
_PERIOD = {tables: {"start": "2026-11-01", "end": f"2026-11-0{tables}"} for tables in range(1, 9)}
HOSTILE = [
    "\"'><img src=x onerror=alert(1)><script>alert(1)</script><svg/onload=alert(1)>",
    "' onmouseover='alert(1)' style='x' </p></li></td></table></section></main></body></html><b>",
    "</title></style></script></textarea></noscript></pre><!-- ]]> --> <? <!doctype a> &lt;b&gt; &#60;b&#62; <b",
    "\0\x1b\x7f\x9f\u2028\u202e\ufeff\uffff\r\n\n# a\n\n1. b\n- c\n| d | e |\n```\n<b>\n\n    f\n"
    "***g*** `h` [i](javascript:j) ![k](l)",
    "{{ 7 * 7 }}{% for a in b %}{# c #}${d}</b>%s%(e)s{f}\\",
]


class Elements(HTMLParser):
    """What a browser makes of a page: every element with its attributes, every comment and declaration."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.links = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag != "wbr":  # the lines of an address may end where they do
            self.seen.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value for name, value in attrs if name in ("href", "src", "action")]

    def handle_endtag(self, tag):
        self.seen.append(tag)

    def handle_comment(self, data):
        self.seen.append(("comment", data))

    def handle_decl(self, decl):
        self.seen.append(("declaration", decl))

    handle_pi = unknown_decl = handle_comment


def blocks(text):
    """What a reader of Markdown makes of a text: every block, and everything in a line that is not text."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inside = [child.type for token in tokens for child in token.children or () if not child.type.startswith("text")]
    return [token.type for token in tokens], inside


def marked(value, word):
    """Put a word behind every text of a value."""
    if isinstance(value, dict):
        return {name: marked(part, word) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [marked(part, word) for part in value]
    return value + word if isinstance(value, str) and value else value


def spoiled(release, word):
    """Put a word behind every text of a release that a stranger, a steward or a plug-in may have written."""
    manifest, people = release.manifest, [guarantee.population + word for guarantee in release.guarantees]
    guarantees = tuple(
        replace(
            guarantee,
            population=who,
            unit=Unit(guarantee.unit.name + word, guarantee.unit.relation),
            steps=tuple(replace(step, name=step.name + word, detail=step.detail + word) for step in guarantee.steps),
        )
        for guarantee, who in zip(release.guarantees, people, strict=True)
    )
    given = " ".join("".join(c for c in word if c.isprintable()).split())  # a description takes nothing else
    extra = {f"a {word}": word, f"b {word}": [f"{word}, {word}", word]}
    tables = {
        name: pa.table(
            {
                column: pa.array(marked(table[column].to_pylist(), word), table[column].type)
                for column in table.column_names
            }
        )
        for name, table in release.tables.items()
    }
    return replace(
        release,
        tables=tables,
        guarantees=guarantees,
        manifest={
            **manifest,
            **{name: manifest[name] + word for name in ("created", "hushquery")},
            "meanings": marked(manifest["meanings"], word),
            "notes": [f"a note {word}", word],
            "description": {name: f"a {name} {given}" for name in ("title", "publisher", "licence")}
            | ({} if manifest["kind"] == "local" else {"period": _PERIOD[len(release.tables)]}),
            "parameters": {**manifest["parameters"], **extra, "expected_false_reformulations": 0.5},
            "steps": [
                {**step, "population": step["population"] + word, "parameters": {**step["parameters"], **extra}}
                for step in manifest["steps"]
            ],
        },
    )


def _estimates(word):
    """Pages of estimates: in folders, and sites of the periods of every kind, of a task that changed, and of a gap."""
    for kind in KINDS:
        several = [_odd(release, word) for release in [*weeks(kind, 3, missing=[1], n=200)]]
        yield f"{kind} page", several[0].page()
        yield f"{kind} card", several[0].card()
        yield f"{kind} notebook", several[0]._repr_html_()
        if kind == "setting":
            several.insert(0, _odd(period(kind, -2, 200, client={"epsilon": 2}), word))
            several.insert(0, _odd(period(kind, -3, 200, client={"epsilon": 2}), word))
        for file, data in build_site(several, missing={FIRST + 1: word, FIRST + 9: word}).items():
            if file.endswith((".html", ".xml")):
                yield f"site of {kind} {file}", data.decode()


def _first_run(word):
    """The first-run page: its question, its form with every answer wrong, what it forecasts, and its end."""
    yield "first run", setup._page("start", 200).body.decode()
    for kind in ("setting", "number", "text", "searches"):
        form = {name: f"{name} {word}" for name in setup._suggested(kind)} | {"kind": kind}
        wrong = setup._shown(form, dict.fromkeys([*form, ""], f"wrong {word}"))
        yield f"first run of {kind}", setup._page("form", 422, **wrong).body.decode()
        shown_too = {"forecasts": [(1000, {f"column {word}": word})], "notes": [word], "guessed": word, "answers": 2}
        shown_too |= {"doubts": [word], "toml": f"{word}\n{word}", "command": word}
        yield f"forecast of {kind}", setup._page("form", 200, **setup._shown(form, {}) | shown_too).body.decode()
    for collector in (None, "http://127.0.0.1:8080/"):
        said = {"task": SimpleNamespace(id="0" * 64), "file": word, "accounts": [word, word], "collector": collector}
        yield f"end of a first run {collector}", setup._page("done", 200, **said).body.decode()


def _odd(release, word):
    """Put a word behind every text of a release of estimates, and of its task."""
    odd = spoiled(release, word)
    asked = json.loads(odd.manifest["parameters"]["task_text"])
    asked["task"]["name"] += word
    parameters = {**odd.manifest["parameters"], "task_text": json.dumps(asked)}
    return replace(odd, manifest={**odd.manifest, "parameters": parameters})


def _operator(word):
    """The page of an operator, with and without a store that answers."""
    error = {"what": f"what {word}", "why": f"why {word}", "fix": f"fix {word}"}
    found = {"reports": 9, "of": "mean", "half_width": 0.1}
    epoch = {"number": 3, "phase": f"optin {word}", "moving": "close", "trouble": error, "begins": 60, "ends": 90}
    epoch |= {"reports": None, "received": 7, "more": True, "forecast": found, "at_end": found}
    cost = {"epsilon": 1.0, "delta": 1e-6, "has_account": True, "fits": True, "epochs": 2}
    choice = {"optin": cost | {"left_epsilon": 1.0, "left_delta": 1e-6}, "clients": cost | {"has_account": False}}
    device = {"answer_epsilon": 1.0, "lifetime_epsilon": 4.0, "answers_left": 3}
    following = {
        "epoch": 4,
        "will": "keep",
        "advice": "new",
        "why": f"why {word}",
        "change": f"c {word}",
        "begun": True,
    }
    following |= {"missed": {"epoch": 3, "share": 0.3, "low": 0.2, "high": 0.4}, "device": device}
    following |= {"keep": choice | {"why_not": f"not {word}"}, "new": choice | {"why_not": None}}
    account = {"population": f"people {word}", "epsilon": 8.0, "spent_epsilon": None, "delta": 1e-6}
    task = {
        "id": "0" * 64,
        "name": f"task {word}",
        "kind": "searches",
        "min_batch": 9,
        "uploads": {f"reason {word}": 2},
    }
    task |= {"epochs": [epoch, epoch | {"begins": None, "received": None}], "device": device, "next": following}
    task |= {"accounts": [account | {"remaining_epsilon": 1.0, "remaining_delta": 1e-6}]}
    data = {"now": 70, "bytes": 10, "most_bytes": 20, "disk_free": 30, "clock_stopped": error}
    data |= {"ledger_trouble": f"ledger {word}", "tasks": [task, task | {"accounts": [], "epochs": [], "uploads": {}}]}
    yield "operator", operator_page(data, 0.0)
    yield "operator without a store", operator_page(None, 0.0, f"trouble {word}")


def everything(word, folder):
    """Every page there is, by name, with the word in all that others write."""
    hybrid, counts = spoiled(private_hybrid(), word), spoiled(whole_release(test_noise=True), word)
    weak = replace(hybrid, guarantees=(replace(hybrid.guarantees[0], epsilon=20.0, delta=0.01), hybrid.guarantees[1]))
    older = spoiled(shares_of({"news": 0.05, "gone": 0.04}, {("news", "https://a.example/"): 0.03}), word)
    newer = spoiled(
        shares_of({"news": 0.08, "new": 0.03}, {("news", "https://a.example/"): 0.07, ("new", ""): 0.03}), word
    )
    releases = {"hybrid": hybrid, "counts": counts, "weak": weak, "list": spoiled(release_of(["news", "rain"]), word)}
    budget = {"population": f"people {word}", "epsilon": 8, "delta": "1e-4", "remaining_epsilon": "6"}
    for name, release in releases.items():
        yield f"{name} page", release.page(budget=budget, signed=f"SHA256:{word}")
        yield f"{name} card", release.card()
        yield f"{name} notebook", release._repr_html_()
    yield "sheet as a card", nist_text(hybrid)
    yield "entry as a card", registry_text(hybrid)
    for name, result in {"search": SearchIndex(counts).search("weather"), "find": find(hybrid, "*")}.items():
        yield f"{name} notebook", result._repr_html_()
    spends = [{**row, "account": row["account"] + word, "what": marked(row["what"], word)} for row in LEDGER]
    told = {"task": task_of()[1], "ledger": spends}
    sites = {"shares": ([older, newer], told), "weak": ([weak], {}), "counts": ([counts], {})}
    for name, (several, privacy) in sites.items():
        for file, data in build_site(several, privacy=privacy, title=f"people {word}").items():
            if file.endswith((".html", ".xml")):
                yield f"site {name} {file}", data.decode()

    task = configuration("setting").task
    asked = {"name": f"task {word}", "population": f"people {word}", "domain": (f"value {word}", word, ("a", word))}
    assert task.id  # known from before, as a name may hold none of these
    task = task.model_copy(update={"task": task.task.model_copy(update=asked)})
    few = SimpleNamespace(task=task, task_row=1, number=1, phase="closed", reports=2, counts={"min_batch": 3})
    epoch = SimpleNamespace(task=task, task_row=1, number=2, phase=f"opt_in {word}", reports=None)
    cache = SimpleNamespace(tasks={1: task, 2: task}, current=lambda _: epoch, epochs=lambda: [few, epoch])
    pages = Pages(SimpleNamespace(cache=cache))
    yield "entrance", pages.entrance().data.decode()
    yield "waiting", pages._nothing_yet(1).decode()
    yield from _first_run(word)
    yield from _estimates(word)
    yield from _operator(word)

    head = type("Head", (), {"optin": SimpleNamespace(n=5), "__len__": lambda _: 3})()
    made = SimpleNamespace(release=hybrid, tally=None, head=head)
    audit = SimpleNamespace(runs=10, lower_bound=0.5, confidence=0.95)
    ledger = SimpleNamespace(over_time=lambda: spends)
    yield "demo", demo._write_page(folder, made, f"refused {word}", audit, ledger, 0).read_text(encoding="utf-8")

    book = Ledger.open(folder / "ledger.db")
    plain = "".join(letter for letter in word if letter.isprintable())  # a ledger takes nothing else
    book.open_account(f"people {plain}", "replace-one", Budget(2, 0))
    book.spend(f"people {plain}", "replace-one", Loss(pure=("1/2",)), what=f"a spend {plain}")
    yield "ledger", book._repr_html_()
    estimates = Estimates.raw([f"a {word}", word], [1.0, 2.0], [1.0, 2.0])
    yield "estimates in a notebook", replace(estimates, guarantee=hybrid.guarantees[0])._repr_html_()
    yield "guarantee", hybrid.guarantees[0]._repr_html_()
    yield "log", render("notebook/log.html", text=f"Log({word})")
    facts = {"columns": word, "seen": (Column(1, f"c {word}", "words", 0.5),), "hints": (f"h {word}", word)}
    defects = (Defect(f"kind {word}", 2, ((f"file {word}", 7),)),)
    counts_of = {"lines": 9, "left_out": {f"kind {word}": 2}, "defects": defects, "rows": 7, "users": 3, "private": 1}
    for more in (counts_of | {"popular": {10: 1}, "rows_per_user": {"1": 3}, "since": f"s {word}"}, {"problem": word}):
        seen = Look((f"file {word}",), {"encoding": f"e {word}"}, f"format {word}", (word,), **facts, **more)
        plan = None if "problem" in more else advise(100, 200)
        yield f"look {len(more)}", render("look.html", **page_values(seen, plan, f"hushquery release {word}"))


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    """Every page with harmless words, and which templates they were made of."""
    loaded, load = set(), jinja2.Environment.get_template

    def noted(self, name, *rest, **options):
        loaded.add(str(name))
        return load(self, name, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "get_template", noted)
        pages = dict(everything(HARMLESS, tmp_path_factory.mktemp("harmless")))
    return pages, loaded


def test_every_template_is_filled_here(harmless):
    assert sorted(harmless[1]) == TEMPLATES


@pytest.mark.parametrize("word", HOSTILE, ids=["elements", "attributes", "ends", "markdown", "templates"])
def test_nothing_that_strangers_write_becomes_an_element_or_an_attribute(harmless, word, tmp_path):
    pages = dict(everything(word, tmp_path))
    assert list(pages) == list(harmless[0])
    for name, page in pages.items():
        if name.endswith("card"):
            kinds, inside = blocks(page)
            assert (kinds, inside) == blocks(harmless[0][name]), name
            assert not {"html_block", "html_inline", "link_open", "image"} & {*kinds, *inside}
            continue
        ours, theirs = Elements(harmless[0][name]), Elements(page)
        assert theirs.seen == ours.seen, name
        # What others wrote is never an address of its own, only what a page of ours is asked for.
        kept = [link for link in theirs.links if not re.match(r"query\.html#q=[\w%./~-]+$", link)]
        if name != "estimates":  # a release's id, which is the collector's own
            assert set(kept) <= set(ours.links), name
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", re.sub("(?s)<script.*?</script>", "", page))


def test_what_is_not_escaped_would_be_seen():
    made = jinja2.Environment(autoescape=True).from_string('<p title="{{ a|safe }}">{{ a|safe }}</p>')
    for word in HOSTILE[:3]:
        assert Elements(made.render(a=word)).seen != Elements(made.render(a=HARMLESS)).seen
    assert blocks(HOSTILE[3]) != blocks(HARMLESS)
    assert blocks(str(markdown(HOSTILE[3]))) == blocks(HARMLESS)


def test_no_template_switches_escaping_off_and_one_alone_begins_a_page():
    for name in TEMPLATES:
        text = (SOURCE / "templates" / name).read_text(encoding="utf-8")
        assert not re.search(
            r"\|\s*(safe|forceescape)|autoescape|\bMarkup\b|\son\w+=|<style[^>]|<script[^>]*src=\"http", text
        )
        assert ("<!doctype" in text) == (name == "base.html"), name


def test_what_is_missing_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        render("notebook/log.html")
    with pytest.raises(TypeError, match="missing"):
        render("notebook/log.html", text=None)


def markup_in(path):
    """The texts of a file that hold markup, but for what it is documented with."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    tag = re.compile(
        r"</?(a|b|bdi|body|br|code|dd|details|div|dl|dt|figure|form|h[1-6]|head|html|i|li|line|main|meta|ol|p|pre|rect"
        r"|script|section|small|span|style|summary|svg|table|td|text|th|tr|ul)[\s>/]|\|---"
    )
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in texts if id(node) not in documented and tag.search(node.value)]


def test_python_writes_no_markup(tmp_path):
    files = [path for path in SOURCE.rglob("*.py") if "evaluate" not in path.parts]
    assert len(files) > 100
    assert {str(path): found for path in files if (found := markup_in(path))} == {}
    (tmp_path / "a.py").write_text('"""<p>"""\nx = f"<li class=a>{x}</li>"\ny = "a < b > c"\n')
    assert len(markup_in(tmp_path / "a.py")) == 2
    for path in files:
        text = path.read_text(encoding="utf-8")
        known = {"templates/__init__.py", "release/page.py", "publish/site/build.py"}
        assert "Markup(" not in text or path.relative_to(SOURCE).as_posix() in known


def test_text_is_text():
    assert str(shown("<a>\n")) == "&lt;a&gt;␊"
    assert str(markdown("- [a](b)")) == r"\- \[a\](b)"
