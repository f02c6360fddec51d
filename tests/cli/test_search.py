"""`hushquery search, show, trends, keywords, suggest, correct, classify, similar, find` as a person types them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import textwrap

import pytest
import typer
from typer.testing import CliRunner

from hushquery.cli.listing import listing
from hushquery.cli.search import classify, correct, find, keywords, search, similar, suggest
from hushquery.cli.show import show
from hushquery.cli.trends import trends
from hushquery.errors import DataError, HushqueryError, UsageError
from small_releases import CLICKS, QUERIES, private_hybrid, release_of, shares_of, whole_release

COMMANDS = (search, show, trends, keywords, suggest, correct, classify, similar, find)

app = typer.Typer()
for command in COMMANDS:
    app.command()(command)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def good(*arguments):
    done = call(*arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def data(*arguments):
    return json.loads(good(*arguments, "--json").stdout)


def refused(error, *arguments):
    done = call(*arguments)
    assert isinstance(done.exception, error), (done.output, done.exception)
    assert done.exception.what
    assert done.exception.fix
    return done.exception


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Releases on disk: whole, later, queries only, a bare list, and one with test noise."""
    root = tmp_path_factory.mktemp("releases")
    later = {**QUERIES, "weather leeds": 1_000, "budget": 500}
    del later["news"]
    releases = {
        "whole": whole_release(),
        "later": release_of(later),
        "plain": release_of(QUERIES),
        "bare": release_of(list(QUERIES)),
        "noise": whole_release(test_noise=True),
        "hybrid": private_hybrid(),
        "hybrid-later": shares_of({"weather leeds": 0.2, "news": 0.0716, "budget": 0.1}, of=" of example.org"),
        "world": release_of({"北京天气": 90, "طقس القاهرة": 80, "evil \x1b[31m \u202e red": 70, "[bold]x[/]": 60}),
    }
    for name, release in releases.items():
        release.save(root / name)
    return root


def test_search(folders):
    found = data("search", folders / "whole", "waether", "leds")
    assert found["queries"][0]["query"] == "weather leeds"
    assert found["urls"][0]["url"] == "https://weather.example.org/leeds"
    text = good("search", folders / "whole", "waether leds", "--limit", 1).stdout
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["page", "clicks", "score"]
    assert lines[1].startswith("https://weather.example.org/leeds")
    assert "890 to 910" in text
    assert "score" not in lines[3]
    assert "match" in lines[3]
    assert len(lines) == 7
    more = data("search", folders / "whole", "waether leds")
    pages, queries = len(more["urls"]) - 1, len(more["queries"]) - 1
    assert lines[-1] == f"{pages} page{'s' if pages > 1 else ''} and {queries} queries more: --limit {queries + 1}"
    assert (more["more_urls"], more["more_queries"]) == (0, 0)
    assert "more" not in good("search", folders / "whole", "waether leds", "--limit", queries + 1).stdout


def test_search_says_what_its_score_is():
    text = " ".join(good("search", "--help").stdout.split())
    for words in ("6 it is the text", "2 it has some of the words", "score of a page adds up the clicks"):
        assert words in text


def test_keywords_say_what_would_find_some(folders):
    whole = folders / "whole"
    text = good("keywords", whole, "--seed", "weather", "--gamma", 0.9).stdout
    assert text.startswith("nothing found")
    assert f"hushquery show {whole} --query weather" in " ".join(text.split())
    gamma = text.split("--gamma ")[1].split()[0]
    assert data("keywords", whole, "--seed", "weather", "--gamma", gamma)["keywords"]
    assert not data("keywords", whole, "--seed", "weather", "--gamma", float(gamma) + 0.002)["keywords"]
    assert "none shares a clicked page" in good("keywords", whole, "--seed", "fear of flying").stdout
    assert "knows none of the seeds" in good("keywords", whole, "--seed", "zzzzqq").stdout


def test_search_without_clicks_says_so(folders):
    done = good("search", folders / "plain", "weather")
    assert "no clicks" in done.stderr
    assert "weather leeds" in done.stdout
    assert "no clicks" in data("search", folders / "plain", "weather")["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("search", "whole", "zzzzqq"), "queries"),
        (("suggest", "whole", "zzzzqq"), "suggestions"),
        (("similar", "whole", "zzzzqq"), "similar"),
        (("correct", "whole", "zzzzqq"), "correction"),
        (("keywords", "whole", "--seed", "zzzzqq"), "keywords"),
        (("find", "whole", "zzzz*"), "queries"),
        (("show", "whole", "--query", "zzzzqq"), "query"),
    ],
)
def test_nothing_found_is_no_error(folders, arguments, key):
    command, folder, *rest = arguments
    assert not data(command, folders / folder, *rest)[key]
    assert good(command, folders / folder, *rest).stdout.startswith("nothing")


def test_suggest(folders):
    found = data("suggest", folders / "whole", "weather")
    assert [row["query"] for row in found["suggestions"]] == ["weather leeds", "weather london"]
    assert "people went on to it" in good("suggest", folders / "whole", "weather").stdout
    assert "neither" in refused(DataError, "suggest", folders / "plain", "weather").why


def test_similar(folders):
    assert data("similar", folders / "whole", "weather")["similar"][0]["query"] == "weather london"
    assert "https://weather.example.org/" in good("similar", folders / "whole", "weather").stdout
    assert "--clicks-per-user" in refused(DataError, "similar", folders / "plain", "weather").fix


def test_correct(folders):
    found = data("correct", folders / "whole", "waether leeds")["correction"]
    assert (found["query"], found["mistakes"]) == ("weather leeds", 1)
    assert "1 typing mistake away" in good("correct", folders / "whole", "waether", "leeds").stdout


def test_keywords(folders):
    found = data("keywords", folders / "whole", "--seed", "weather", "--seed", "nowhere", "--gamma", "0.1")
    assert {row["query"] for row in found["keywords"]} == {"weather london", "weather leeds", "waether leeds"}
    assert found["notes"] == ["the release has no query or page 'nowhere'"]
    text = good("keywords", folders / "whole", "--seed", "football.example.org/leeds").stdout
    assert text.splitlines()[1].split() == ["leeds", "united", "0.900", "700", "690", "to", "710"]
    refused(UsageError, "keywords", folders / "whole", "--seed", "weather", "--alpha", "7")
    refused(DataError, "keywords", folders / "plain", "--seed", "weather")


def test_classify(folders, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("item,label\nweather,sky\nleeds united,sport\nnowhere,sport\n")
    found = data("classify", folders / "whole", "--labels", labels)
    assert {row["query"]: row["label"] for row in found["queries"]}["leeds united tickets"] == "sport"
    assert len(found["notes"]) == 1
    text = good("classify", folders / "whole", "--labels", labels, "--limit", 3).stdout
    assert len(text.splitlines()) == 4
    assert "given" in text
    refused(UsageError, "classify", folders / "whole", "--labels", tmp_path / "none.csv")


def test_find(folders):
    found = data("find", folders / "whole", "fear of *", "weather l*")["queries"]
    assert [(row["rank"], row["query"]) for row in found] == [
        (1, "weather leeds"),
        (2, "weather london"),
        (3, "fear of flying"),
        (4, "fear of heights"),
    ]
    said = good("find", folders / "whole", "fear of *").stdout
    assert "fear of flying" in said
    assert "possible ranks" in said  # nothing that is printed is true without noise
    assert "true" not in said
    assert data("find", folders / "bare", "fear of *")["queries"][0]["count"] is None
    refused(UsageError, "find", folders / "whole", "")
    # A word alone is the whole query; who wanted it anywhere is told how.
    for word in ("weather", "nowhere"):
        assert f"'*{word}*' finds all that hold it" in good("find", folders / "whole", word).stderr
    assert not good("find", folders / "whole", "weather*", "nowhere?").stderr
    assert data("find", folders / "whole", "weather")["patterns"] == ["weather"]


def test_trends_of_one_release(folders):
    text = good("trends", folders / "whole", "--limit", 2)
    assert [line.split()[0] for line in text.stdout.splitlines()] == ["rank", "1", "2"]
    assert "capped" in text.stderr
    assert data("trends", folders / "whole")["top"][0]["count"] == 900
    assert "--select-only" in refused(DataError, "trends", folders / "bare").why


def test_trends_between_releases(folders):
    found = data("trends", folders / "whole", folders / "later", "--bonferroni")
    assert found["changes"][0]["query"] == "weather leeds"
    assert found["changes"][0]["change"] == 100
    assert found["changes"][0]["significant"] is True
    assert [row["significant"] for row in found["changes"][1:]] == [False] * 7
    assert found["appeared"] == [{"query": "budget", "counts": [None, 500]}]
    assert found["gone"] == [{"query": "news", "counts": [600, None]}]
    text = good("trends", folders / "whole", folders / "later").stdout
    assert "+100" in text
    assert "changed" in text
    assert "below the threshold" in text
    assert text.splitlines()[0].split()[:3] == ["query", "whole", "later"]


def test_trends_as_a_chart(folders, tmp_path):
    good("trends", folders / "whole", folders / "later", "--plot", tmp_path / "chart.svg")
    assert "weather leeds" in (tmp_path / "chart.svg").read_text()
    refused(UsageError, "trends", folders / "whole", "--plot", tmp_path / "chart.pdf")


def test_show_a_release(folders):
    text = good("show", folders / "whole", "--limit", 2).stdout
    assert text.startswith("epsilon 0.5, delta 0 for one user")
    assert "queries: 9 rows, users who searched for the query" in text
    assert "weather leeds" in text
    assert "news" not in text.split("clicks: ")[0]
    found = data("show", folders / "whole")
    assert found["tables"]["clicks"]["rows"] == len(CLICKS)
    assert found["guarantees"][0]["epsilon"] == 0.5
    assert found["first_rows"]["queries"][0]["query"] == "weather leeds"
    assert "weather leeds" in good("show", folders / "bare").stdout


def test_show_a_query(folders):
    found = data("show", folders / "whole", "--query", "WEATHER london")
    assert (found["query"], found["count"]) == ("weather london", 400)
    assert found["urls"][1]["count"] == -3
    text = good("show", folders / "whole", "--query", "weather london").stdout
    assert "https://news.example.org/" in text
    assert "no reformulations of this query were released" in text
    assert "this release has no clicks" in good("show", folders / "bare", "--query", "weather").stdout


def test_shares_are_shown_in_per_cent(folders):
    text = good("show", folders / "hybrid").stdout
    assert "shares are of all records; 64.35% of them are not listed" in text
    assert "11.12%  10.59 to 11.65%" in text
    assert "8.30% ± 0.50%  5.36% ± 0.25%    0.20     +5.3" in text
    assert [line.split()[0] for line in text.splitlines()[:2]] == ["epsilon", "epsilon"]
    text = good("show", folders / "hybrid", "--query", "fear of flying").stdout
    assert "no clicks of this query were released" in text
    assert "searches without a click" in text
    text = good("search", folders / "hybrid", "waether leds").stdout
    assert text.splitlines()[0].split()[:3] == ["page", "share", "score"]
    assert text.splitlines()[1].split()[:2] == ["https://weather.example.org/leeds", "9.40%"]
    text = good("keywords", folders / "hybrid", "--seed", "weather", "--gamma", "0.1").stdout
    assert "11.12%" in text
    text = good("find", folders / "hybrid", "fear*").stdout
    assert text.splitlines()[1].split() == ["1", "fear", "of", "flying", "1.31%", "1.01", "to", "1.61%", "1"]
    assert "its share is about 11.1%" in good("correct", folders / "hybrid", "waether leeds").stdout


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("search", "weather"), ("queries", 0)),
        (("search", "weather"), ("urls", 0)),
        (("keywords", "--seed", "weather", "--gamma", "0.1"), ("keywords", 0)),
        (("find", "*"), ("queries", 0)),
        (("trends",), ("top", 0)),
        (("show", "--query", "weather"), ("urls", 0)),
    ],
)
def test_json_has_the_count_or_the_share(folders, arguments, place):
    command, *rest = arguments
    key, index = place
    ours, theirs = (data(command, folders / name, *rest)[key][index] for name in ("hybrid", "whole"))
    assert ours["share"] > 0
    assert not {"count", "clicks", "shares"} & set(ours)
    assert {"count", "clicks"} & set(theirs)
    assert not {"share", "shares"} & set(theirs)


def test_trends_of_shares(folders):
    text = good("trends", folders / "hybrid", "--limit", 1)
    assert text.stdout.splitlines()[1].split() == ["1", "weather", "leeds", "11.12%", "10.59", "to", "11.65%"]
    done = good("trends", folders / "hybrid", folders / "hybrid-later")
    assert "change in points" in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[1].split()[:5] == ["weather", "leeds", "11.12%", "20.00%", "+8.88%"]
    assert "not listed" in done.stdout
    assert "head list" in done.stderr
    found = data("trends", folders / "hybrid", folders / "hybrid-later")
    assert found["appeared"] == [{"query": "budget", "shares": [None, 0.1]}]
    assert found["changes"][0]["shares"] == [pytest.approx(0.1112), 0.2]
    assert "can't be compared" in refused(DataError, "trends", folders / "whole", folders / "hybrid").what


def test_test_noise_is_called_by_its_name(folders):
    done = good("search", folders / "noise", "weather", "--json")
    assert "NOT PRIVATE" in done.stderr
    json.loads(done.stdout)
    assert "NOT PRIVATE" not in good("search", folders / "whole", "weather").stderr


def test_a_folder_that_is_no_release(tmp_path):
    refused(HushqueryError, "search", tmp_path, "weather")
    for name, *rest in (("show",), ("search", "weather"), ("keywords", "--seed", "weather")):
        error = refused(DataError, name, tmp_path / "relase", *rest)
        assert str(error).startswith(f"there is no folder {tmp_path / 'relase'}")
        assert "again" not in error.fix


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(command):
    text = good(command.__name__, "--help").stdout
    assert f"hushquery {command.__name__} release" in text
    assert "--json" in text


def test_limits_below_one_are_refused(folders):
    assert call("search", folders / "whole", "weather", "--limit", "0").exit_code == 2


def test_other_scripts_and_hostile_values(folders):
    shown = good("show", folders / "world").stdout
    assert "北京天气" in shown
    assert "[bold]x[/]" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert data("search", folders / "world", "北京天汽")["queries"][0]["query"] == "北京天气"
    for text in ("\udcff\udcfe", "\x00", "w" * 5_000, "(.*"):
        good("search", folders / "whole", "--json", "--", text)
        good("suggest", folders / "whole", "--", text)


def test_columns_stay_aligned_with_wide_characters():
    text = listing(("query", "count"), [("天气", "1"), ("weather", "22"), ("a\nb", "3")], ("count",))
    assert text.splitlines() == ["query    count", "天气         1", "weather     22", "a�b          3"]
    assert listing(("query",), []) == ""


def test_a_terminal_gets_a_table(folders):
    """In a process of its own with a real terminal: Rich takes over, and markup in a query stays text."""
    code = textwrap.dedent("""
        import sys, typer
        from hushquery.cli.search import find
        from hushquery.cli.show import show
        app = typer.Typer(); app.command()(find); app.command()(show)
        app(["find", sys.argv[1], "*"])
    """)
    master, slave = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", code, str(folders / "world")], stdout=slave, stderr=slave)
    assert done.wait(timeout=120) == 0
    shown = b""
    while b"[/]" not in shown:
        shown += os.read(master, 65536)
    os.close(slave)
    os.close(master)
    assert b"\x1b[1m" in shown  # the head is bold
    assert b"[bold]x[/]" in shown
    assert b"\x1b[31m" not in shown


def test_command_files_import_nothing_heavy():
    code = (
        "import sys, hushquery.cli.search, hushquery.cli.show, hushquery.cli.trends, hushquery.cli.listing;"
        "print([m for m in ('numpy', 'scipy', 'pyarrow', 'altair', 'rich.table') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
