"""The JSON Schemas in src/hushquery/schemas: current, and of one mind with the code about what they describe."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

import hushquery as hq
from hushquery.curator.plan import SELECTORS
from hushquery.errors import HushqueryError
from hushquery.hybrid.simulate import simulate
from hushquery.local.report import MOST_PAYLOAD, Report
from hushquery.release import verify
from hushquery.release.release import MANIFEST, manifest_bytes, sign
from hushquery.task import Task
from hushquery.task.answers import template
from mutations import STRANGE, instead, spoiled, without
from setting_reports import REPORTS, TASK
from small_releases import private_hybrid
from statistical import bits

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "src" / "hushquery" / "schemas"
NAMES = sorted(path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir())


@pytest.fixture(scope="session")
def tool() -> Any:
    """The tool that writes the schemas."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import schemas
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return schemas


def validator(name: str, part: str = "") -> Any:
    """What judges by a schema, or by a part of it."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    if part:
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    return jsonschema.Draft202012Validator(schema)


def faults(name: str, document: Any, part: str = "") -> list[str]:
    """What a schema finds wrong with a document."""
    found = validator(name, part).iter_errors(json.loads(json.dumps(document)))
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


def test_they_are_current(tool: Any) -> None:
    assert tool.stale() == []


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_with_a_name(name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:hushquery:schema:{name}"
    assert schema["title"]
    assert f"schemas/{name}.schema.json" in (ROOT / "docs" / "formats.md").read_text("utf-8")


# ---- releases ----------------------------------------------------------------------------------------------


def searches(users: int = 300) -> pa.Table:
    """A log of some users who all searched for the same three things, and each for one of their own."""
    rows = [
        (f"u{user}", user * 100_000 + 60 * place, query, f"https://{query.split()[0]}.example.org")
        for user in range(users)
        for place, query in enumerate(["weather", "news", "maps", f"rare {user}"])
    ]
    types = {"user": pa.string(), "time": pa.int64(), "query": pa.string(), "url": pa.string()}
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(c, kind) for (name, kind), c in zip(types.items(), columns, strict=True)})


EVERYTHING = {"clicks_per_user": 2, "reformulations_per_user": 2}
WAYS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in SELECTORS]
WAYS += [("gaussian", EVERYTHING), ("laplace", EVERYTHING), ("auto", {"select_only": True})]


@pytest.mark.parametrize(("selector", "more"), WAYS)
def test_what_a_curator_publishes_is_valid(selector: Any, more: dict[str, Any], tmp_path: Path) -> None:
    given = {"epsilon": 4, "delta": 1e-4, "queries_per_user": 4, "population": "readers of example.org"}
    plan = hq.plan_release(hq.read_log(searches()), selector=selector, **given, **more)
    release = plan.run(tmp_path / "ledger.db", bits=bits("schemas", selector))
    folder = release.save(tmp_path / "release")
    assert faults("manifest", json.loads((folder / MANIFEST).read_bytes())) == []
    assert faults("manifest", release.manifest, "made") == []
    assert validator("manifest").is_valid(dict(release.manifest)) is False  # it lists no files


def hybrid_task(mode: str, **head: Any) -> Task:
    return Task.make(
        {
            "task": {"name": "searches", "population": "readers"},
            "optin": {"epsilon": 4, "delta": "1e-4"},
            "client": {"epsilon": 4, "lifetime_epsilon": 8},
            "head": {"size": 10, "mode": mode, **head},
            "collect": {"min_batch": 2},
        }
    )


@pytest.mark.parametrize(("mode", "more"), [("best", {}), ("paper", {}), ("best", {"algorithm": "guided"})])
def test_what_a_hybrid_publishes_is_valid(mode: str, more: dict[str, Any], tmp_path: Path) -> None:
    task = hybrid_task(mode, **more)
    log = hq.read_log(searches(2000))
    made = simulate(log, task, "0.5", str(tmp_path / "ledger.db"), key="split", bits=bits("schemas", mode))
    folder = made.release.save(tmp_path / "release")
    assert faults("manifest", json.loads((folder / MANIFEST).read_bytes())) == []
    assert faults("head", made.head.to_json()) == []


# ---- one mind: what a schema refuses the code refuses ------------------------------------------------------


def accepts(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Judge by a reader of ours, which refuses by its own errors and by no others."""

    def judge(document: Any) -> bool:
        try:
            read(document)
        except HushqueryError:
            return False
        return True

    return judge


def disagreements(name: str, document: Any, accepted: Callable[[Any], bool], every: int = 1) -> tuple[list[str], int]:
    """Name what the schema refuses and the code accepts, and say how much it refused."""
    check = validator(name)
    assert check.is_valid(document)
    assert accepted(document)
    refused = [(what, changed) for what, changed in spoiled(document) if not check.is_valid(changed)]
    looked = list(islice(refused, 0, None, every))
    return [what for what, changed in looked if accepted(changed)], len(looked)


@pytest.mark.parametrize("kind", ["searches", "setting", "number", "text"])
def test_tasks(kind: str) -> None:
    document = tomllib.loads(template(kind))
    judge = accepts(lambda changed: Task.from_json(json.dumps(changed)))
    wrong, refused = disagreements("task", document, judge)
    assert wrong == []
    assert refused > 100
    served = Task.make(document).to_json()
    assert faults("task", served) == []


def test_the_code_refuses_little_else_in_a_task() -> None:
    """The schema says nothing about the texts of numbers, and about numbers that have to fit each other."""
    judge = accepts(lambda changed: Task.from_json(json.dumps(changed)))
    for kind in ("searches", "setting", "number", "text"):
        document, check = tomllib.loads(template(kind)), validator("task")
        for what, changed in spoiled(document):
            if check.is_valid(changed) and not judge(changed):
                assert what.startswith(("'x' at ", "1.5 at ", "-1 at collect/max_body", "[] at task/domain")) or (
                    what == "without task/kind"  # what is left is another kind of task
                )


def test_reports() -> None:
    judge = accepts(lambda changed: Report.from_json(json.dumps(changed)))
    check = validator("report")
    for length in (0, 1, 2, 3, 5, MOST_PAYLOAD):
        document = Report(b"i" * 16, b"t" * 32, b"c" * 32, 1800, b"\xfb" * length).to_json()
        assert check.is_valid(document)
        for _, changed in spoiled(document):
            assert check.is_valid(changed) == judge(changed)
        for payload in ("A", "AB", "AAB", "AA=", "A+/A", "AAAA" * (MOST_PAYLOAD // 3) + "AA", "Ab_-Q"):
            changed = instead(document, payload, "payload")
            assert check.is_valid(changed) == judge(changed), payload


def test_head_lists(tmp_path: Path) -> None:
    head = hq.plan_head(hq.read_log(searches(1000)), hybrid_task("best")).run(tmp_path / "l.db", bits=bits("schemas"))
    document = json.loads(json.dumps(head.to_json()))
    wrong, refused = disagreements("head", document, accepts(hq.PublishedHead.from_json), every=4)
    assert wrong == []
    assert refused > 100


def test_estimates(tmp_path: Path) -> None:
    release = hq.estimate(TASK, [report.to_bytes() for report in REPORTS]).release()
    document, judge = judged(release, tmp_path)
    wrong, refused = disagreements("manifest", document, judge, every=6)
    assert wrong == []
    assert refused > 100


@pytest.fixture
def published(tmp_path: Path) -> tuple[Any, Callable[[Any], bool]]:
    """The manifest of a release, and what judges another one in its place by verifying the folder."""
    return judged(private_hybrid(), tmp_path)


def judged(release: hq.Release, tmp_path: Path) -> tuple[Any, Callable[[Any], bool]]:
    folder = release.save(tmp_path / "release")
    own = json.loads((folder / MANIFEST).read_bytes())

    def judge(changed: Any) -> bool:
        sealed = isinstance(changed, dict) and changed.get("manifest_sha256") == own["manifest_sha256"]
        (folder / MANIFEST).write_bytes(manifest_bytes(sign(changed) if sealed else changed))
        return verify(folder).ok

    return own, judge


def test_manifests(published: tuple[Any, Callable[[Any], bool]]) -> None:
    document, judge = published
    wrong, refused = disagreements("manifest", document, judge, every=8)
    assert wrong == []
    assert refused > 100


def mutated_manifests(own: Any) -> Iterator[tuple[str, Any]]:
    yield "no guarantee", without(own, "guarantees")
    yield "an empty list of guarantees", instead(own, [], "guarantees")
    yield "a guarantee without epsilon", without(own, "guarantees", 0, "epsilon")
    yield "an epsilon as text", instead(own, "4", "guarantees", 0, "epsilon")
    yield "a negative delta", instead(own, -1e-9, "guarantees", 0, "delta")
    yield "a truth for a delta", instead(own, False, "guarantees", 1, "delta")
    yield "an unknown relation", instead(own, "add-one", "guarantees", 0, "relation")
    yield "an unknown model", instead(own, "shuffle", "guarantees", 0, "model")
    yield "a loss with a part nobody knows", instead(own, "1", "guarantees", 0, "steps", 0, "loss", STRANGE)
    yield "a loss without a part", without(own, "steps", 0, "loss", "sparse")
    yield "a step of an unknown kind", instead(own, "exponential", "steps", 0, "parameters", "kind")
    yield "a step without its noise", without(own, "steps", 0, "parameters", "scale")
    yield "a truth that is none", instead(own, 0, "steps", 0, "parameters", "row_counts")
    yield "an unknown randomizer", instead(own, "coin", "steps", 1, "parameters", "oracle", "name")
    yield "another format", instead(own, "hushquery-head", "format")
    yield "a format of the future", instead(own, 4, "format_version")
    yield "an older format than its shares need", instead(own, 1, "format_version")
    yield "an unknown kind", instead(own, "shuffle", "kind")
    yield "a kind that its shares are not", instead(own, "local", "kind")
    yield "a level of one", instead(own, 1, "interval_level")
    yield "shares without the rest", without(own, "parameters", "rest")
    yield "a rest above the whole", instead(own, 1.5, "parameters", "rest")
    yield "a table that no release has", instead(own, own["files"]["queries.parquet"], "files", "users.parquet")
    yield "a file without its hash", without(own, "files", "queries.parquet", "sha256")
    yield "no page", without(own, "files", "report.html")
    yield "no files", without(own, "files")
    yield "no hash of its own", without(own, "manifest_sha256")


def test_what_both_refuse(published: tuple[Any, Callable[[Any], bool]]) -> None:
    own, judge = published
    check = validator("manifest")
    for what, changed in mutated_manifests(own):
        assert not check.is_valid(changed), what
        assert not judge(changed), what
    assert check.is_valid(own)
    assert judge(own)


def test_what_both_ignore(published: tuple[Any, Callable[[Any], bool]]) -> None:
    """A later version may say more in the same format: readers pass over names that they do not know."""
    own, judge = published
    check = validator("manifest")
    for at in [(), ("guarantees", 0), ("steps", 0), ("steps", 0, "parameters"), ("files", "README.md")]:
        changed = instead(own, 1, *at, STRANGE)
        assert check.is_valid(changed), at
        assert judge(changed), at


def test_an_older_manifest_without_measures_is_valid(tmp_path: Path) -> None:
    plan = hq.plan_release(
        hq.read_log(searches()), epsilon=4, delta=1e-4, queries_per_user=4, selector="laplace", population="readers"
    )
    folder = plan.run(tmp_path / "ledger.db", bits=bits("schemas", "older")).save(tmp_path / "release")
    own = json.loads((folder / MANIFEST).read_bytes())
    assert own["format_version"] == 1
    (folder / MANIFEST).write_bytes(manifest_bytes(sign(without(own, "measures"))))
    assert verify(folder).ok
    assert faults("manifest", json.loads((folder / MANIFEST).read_bytes())) == []


ABOUT = {"title": "A week", "period": {"start": "2026-11-02", "end": "2026-11-08"}, "people": 2500}


def test_descriptions_and_signatures(tmp_path: Path) -> None:
    release = private_hybrid()
    release.manifest["description"] = ABOUT  # type: ignore[index]  # a dictionary, as every manifest
    folder = release.save(tmp_path / "release", sign=hq.SigningKey.new())
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert faults("manifest", manifest) == []
    signature = json.loads((folder / "signature.json").read_bytes())
    assert faults("signature", signature) == []
    for name in signature:
        assert faults("signature", {**signature, name: 5})
    for damage in ({"title": ""}, {"title": "x" * 201}, {"title": 5}, {"period": "2026"}, {"people": 0}, []):
        made = {**manifest, "description": damage}
        (folder / MANIFEST).write_bytes(manifest_bytes(sign(made)))
        assert faults("manifest", made)
        assert "description" in " ".join(verify(folder).problems)


def test_exports_hold_what_the_schema_calls_made(tmp_path: Path) -> None:
    release = private_hybrid()
    assert faults("manifest", json.loads((release.to_csv(tmp_path / "csv") / MANIFEST).read_bytes()), "made") == []
    shutil.rmtree(tmp_path / "csv")
