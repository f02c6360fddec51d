"""Releases that describe themselves, and are signed, from the command line and from Python."""

from __future__ import annotations

import json

import pytest

import hushquery as hq
from commands import answer, hushquery
from hushquery.core.ledger.ledger import Ledger
from small_releases import private_hybrid

WHOLE = ["--title", "Searches of a week", "--publisher", "Example Library", "--licence", "CC-BY-4.0"]
WHOLE += ["--contact", "library@example.org"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["user,time,query"]
    rows += [f"u{user},2026-11-{day:02d}T10:00:00,weather" for user in range(300) for day in (2, 9)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    budget = ["--relation", "add-remove", "--epsilon", "9", "--delta", "1e-4", "--ledger", "l.db"]
    assert answer("budget", "open", "--population", "members", *budget)[0] == 0
    return tmp_path


def publish(out, *more):
    spend = ["--epsilon", "1", "--delta", "1e-6", "--queries-per-user", "2", "--population", "members"]
    return answer("release", "log.csv", *spend, "--ledger", "l.db", "--out", out, *more)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_bytes())


def spends():
    return [entry for entry in Ledger.open("l.db").history() if entry.loss is not None]


def test_two_weeks_have_two_manifests(here):
    weeks = {"one": ("2026-11-02", "2026-11-09"), "two": ("2026-11-09", "2026-11-16")}
    for name, (since, until) in weeks.items():
        code, _, said = publish(name, "--since", since, "--until", until, *WHOLE, "--users", "300")
        assert code == 0, said
    one, two = manifest(here / "one"), manifest(here / "two")
    assert one["parameters"]["since"] == "2026-11-02T00:00:00Z"
    assert one["parameters"]["until"] == two["parameters"]["since"] == "2026-11-09T00:00:00Z"
    assert one["description"] == {
        "title": "Searches of a week",
        "publisher": "Example Library",
        "licence": "CC-BY-4.0",
        "period": {"start": "2026-11-02", "end": "2026-11-08"},
        "contact": "library@example.org",
        "people": 300,
    }
    assert two["description"]["period"] == {"start": "2026-11-09", "end": "2026-11-15"}
    assert one["format_version"] == 1  # additive
    for text in ((here / "one" / "README.md").read_text(), (here / "one" / "report.html").read_text()):
        for word in ("Searches of a week", "Example Library", "2026-11-02 to 2026-11-08", "library@example.org", "300"):
            assert word in text
    assert answer("verify", "one")[0] == 0
    shown = answer("show", "one")[1]
    assert shown.startswith("title: Searches of a week\npublisher: Example Library\n")
    assert json.loads(answer("show", "one", "--json")[1])["description"] == one["description"]
    history = answer("budget", "history", "--ledger", "l.db")[1]
    assert "       title: Searches of a week\n       period: 2026-11-02 to 2026-11-08\n" in history
    assert "period: 2026-11-09 to 2026-11-15" in history


def test_the_period_is_never_read_from_rows(here):
    """The same command on other rows states the same."""
    assert publish("plain")[0] == 0
    assert "description" not in manifest(here / "plain")
    assert not {"since", "until"} & set(manifest(here / "plain")["parameters"])
    assert publish("since", "--since", "2026-11-05")[0] == 0
    assert "description" not in manifest(here / "since")
    (here / "log.csv").write_text("user,time,query\n" + "".join(f"u{n},1999-01-01,old\n" for n in range(300)))
    assert publish("moved", "--since", "2026-11-05", "--until", "2026-11-06")[0] == 0
    assert manifest(here / "moved")["description"] == {"period": {"start": "2026-11-05", "end": "2026-11-05"}}


@pytest.mark.parametrize(
    "wrong",
    [
        ["--period", "2026-11"],
        ["--period", "2026-11-09..2026-11-02"],
        ["--period", "2026-11-01..2026-11-08", "--since", "2026-11-02"],
        ["--contact", "me"],
        ["--title", "a\x07b"],
        ["--users", "0"],
        ["--sign", "nothing.key"],
        ["--sign", "log.csv"],
    ],
)
def test_what_is_refused_spends_nothing(here, wrong):
    (here / "log.csv").chmod(0o600)
    code, _, said = publish("out", *wrong)
    assert code in (2, 4), said
    assert not spends()
    assert not (here / "out").exists()


def test_keys_and_signatures(here):
    code, said, _ = answer("keys", "new", "--out", "publisher.key")
    fingerprint = said.split("fingerprint: ")[1].strip()
    assert code == 0
    assert answer("keys", "show", "publisher.key.pub")[1].strip() == fingerprint
    assert answer("keys", "new", "--out", "publisher.key")[0] == 2
    code, _, said = publish("signed", *WHOLE, "--sign", "publisher.key")
    assert code == 0, said
    told = answer("verify", "signed")[1]
    assert f"signed by {fingerprint}, not checked against a key you trust" in told
    told = answer("verify", "signed", "--key", "publisher.key.pub")[1]
    assert f"signed by {fingerprint} (Example Library), the key you gave" in told
    assert json.loads(answer("verify", "signed", "--key", fingerprint, "--json")[1])["signature"]["trusted"] is True
    assert answer("keys", "new", "--out", "other.key")[0] == 0
    code, _, said = answer("verify", "signed", "--key", "other.key.pub")
    assert (code, "signed with another key" in said) == (4, True)
    assert fingerprint in (here / "signed" / "report.html").read_text()

    assert publish("later")[0] == 0
    code, _, said = answer("verify", "later", "--key", "publisher.key.pub")
    assert (code, "not signed" in said) == (4, True)
    assert answer("sign", "later", "--key", "publisher.key")[0] == 0
    assert answer("verify", "later", "--key", "publisher.key.pub")[0] == 0
    assert answer("sign", "later", "--key", "publisher.key")[0] == 2
    assert answer("sign", "later", "--key", "other.key", "--force")[0] == 0
    assert answer("sign", "nothing", "--key", "other.key")[0] == 4
    assert publish("later", "--force", "--sign", "other.key")[0] == 0  # a signature is a file of the release
    assert answer("site", "later", "signed", "--out", "site")[0] == 0
    page = (here / "site" / "privacy.html").read_text()
    assert fingerprint in page
    assert "Searches of a week" in page


def test_a_passphrase_is_not_asked_of_nobody(here):
    code, _, said = answer("keys", "new", "--out", "k", "--passphrase")
    assert (code, "HUSHQUERY_PASSPHRASE" in said) == (2, True)
    assert not (here / "k").exists()
    made = hushquery("keys", "new", "--out", "k", "--passphrase", **{"HUSHQUERY_PASSPHRASE": "open sesame"})
    assert made.returncode == 0
    assert "open sesame" not in made.stdout + made.stderr
    code, _, said = publish("out", "--sign", "k")
    assert (code, spends()) == (2, [])
    private_hybrid().save(here / "signed")
    signed = hushquery("sign", "signed", "--key", "k", **{"HUSHQUERY_PASSPHRASE": "open sesame"})
    assert signed.returncode == 0, signed.stderr
    wrong = hushquery("sign", "signed", "--key", "k", "--force", **{"HUSHQUERY_PASSPHRASE": "open says me"})
    assert wrong.returncode == 2
    assert "open says me" not in wrong.stdout + wrong.stderr


def test_statistics_leave_their_title_in_the_ledger(here):
    line = ["stat", "count", "log.csv", "--unit", "user", "--epsilon", "0.5", "--population", "members"]
    about = ["--title", "How many", "--period", "2026-11-02..2026-11-09"]
    code, said, _ = answer(*line, "--ledger", "l.db", *about, "--json")
    assert code == 0
    assert json.loads(said)["description"]["title"] == "How many"
    assert spends()[-1].plan == "title: How many\nperiod: 2026-11-02 to 2026-11-09"


def test_a_blend_is_described_and_signed_too(here):
    assert answer("keys", "new", "--out", "k")[0] == 0
    (here / "log.csv").write_text(
        "user,query,url\n" + "".join(f"u{n},weather,https://weather.example/\n" for n in range(400))
    )
    said = answer(
        *("blend", "--simulate", "log.csv", "--optin", "0.5", "--population", "readers", "--ledger", "l.db"),
        *("--out", "mixed", "--period", "2026-11-02..2026-11-08", "--users", "400", "--sign", "k", *WHOLE),
    )
    assert said[0] == 0, said
    assert manifest(here / "mixed")["description"]["people"] == 400
    assert answer("verify", "mixed", "--key", "k.pub")[0] == 0
    assert {entry.plan for entry in spends()} == {"title: Searches of a week\nperiod: 2026-11-02 to 2026-11-08"}


def test_from_python(here):
    log = hq.read_log("log.csv", since="2026-11-02", until="2026-11-09")
    about = hq.Description(title="From a notebook", publisher="Example Library", people=300)
    plan = hq.plan_release(log, population="members", queries_per_user=2, epsilon=1, delta=1e-6, description=about)
    key = hq.SigningKey.new()
    folder = plan.run("l.db").save("made", sign=key)
    assert hq.verify(folder, key.public).trusted
    loaded = hq.Release.load(folder)
    assert loaded.description.period == "2026-11-02..2026-11-08"
    assert loaded.description.title == "From a notebook"
    assert spends()[-1].plan.startswith("title: From a notebook\n")


def test_a_description_that_was_changed_is_found(here):
    from hushquery.release.release import manifest_bytes, sign

    release = private_hybrid()
    release.manifest["description"] = {"title": "ok"}
    folder = release.save(here / "release")
    for damage in ({"title": ""}, {"title": "a\x1bb"}, [], {"contact": "javascript:x"}, {"people": "many"}):
        changed = {**manifest(folder), "description": damage}
        (folder / "manifest.json").write_bytes(manifest_bytes(sign(changed)))
        code, out, said = answer("verify", folder)
        assert (code, "description" in said) == (4, True), said
        assert "\x1b[" not in out + said.replace("\x1b[0m", "").replace("\x1b[31m", "")
    changed = {**manifest(folder), "description": {"period": {"start": "2026-11-01", "end": "2026-11-02"}}}
    changed["parameters"]["since"] = "2026-11-02T00:00:00Z"
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(changed)))
    assert "beyond the times" in answer("verify", folder)[2]
