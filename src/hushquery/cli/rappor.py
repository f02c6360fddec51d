"""``hushquery rappor``: encode, sum and decode RAPPOR reports in google/rappor's CSV formats."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from hushquery.cli.common import JsonFlag, argument, emit, flag, group, note, option, progress, warn, writing
from hushquery.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from hushquery.local.rappor.response import Encoder, Params


app = group(
    "rappor",
    """Estimate how many clients hold a string, from reports that hide what each one holds.

    The files are those of google/rappor: the same headers, the same columns,
    the same order. A whole round, with one candidate per line in words.txt:

    hushquery rappor encode true_values.csv --params params.csv --out reports.csv

    hushquery rappor sum-bits reports.csv --params params.csv --out counts.csv

    hushquery rappor hash-candidates words.txt --params params.csv --out map.csv

    hushquery rappor decode --params params.csv --counts counts.csv --map map.csv
    """,
)

ParamsFile = Annotated[str, option("FILE", "params.csv: the header k,h,m,p,q,f and one row.", "--params")]
VariantName = Annotated[
    str, option("VARIANT", "google-python (its client, bit for bit) or native (any k, exact chances).", "--variant")
]
Out = Annotated[str, option("FILE", "Where to write; - is standard output.", "--out", "-o")]


@app.command()
def encode(
    params: ParamsFile,
    values: Annotated[str, argument("[FILE]", "true_values.csv: client,cohort,value; - is standard input.")] = "-",
    out: Out = "-",
    key: Annotated[
        str | None, option("FILE", "A file of 16 random bytes or more, to derive secrets from.", "--key")
    ] = None,
    variant: VariantName = "google-python",
    task: Annotated[str, option("ID", "Native only: the task whose coins these are.")] = "",
    hide_steps: Annotated[
        bool, flag("--hide-steps", "Leave bloom and prr empty, so that the file may leave the device.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Randomise values into reports.csv: client,cohort,bloom,prr,irr.

    hushquery rappor encode true_values.csv --params params.csv --key secret.key --hide-steps --out reports.csv

    Without --key a client's name is its secret, as in the reference's simulation: whoever knows the names can undo
    the permanent response. The columns bloom and prr say what irr hides.
    """
    from hushquery.local.rappor.files import encode_rows, read_params, read_values, write_reports
    from hushquery.local.rappor.response import Variant
    from hushquery.noise.sampler import SystemBits

    agreed = read_params(params)
    device_of = _devices(agreed, Variant.of(variant), task, key)
    if key is None or not hide_steps:
        note("this is a simulation; real reports need --key and --hide-steps, or they do not protect anyone")
    with progress("randomising"), _input(values) as source, _output(out) as target:
        rows = encode_rows(agreed, read_values(source, agreed), device_of, SystemBits(), hide_steps=hide_steps)
        count = write_reports(rows, target)
    _done(out, {"reports": count, **_costs(agreed, variant)}, f"{count:,} reports in {out}", as_json)


@app.command("sum-bits")
def sum_bits(
    params: ParamsFile,
    reports: Annotated[str, argument("[FILE]", "reports.csv, of which only irr is read; - is standard input.")] = "-",
    out: Out = "-",
    as_json: JsonFlag = False,
) -> None:
    r"""Count reports into counts.csv: a row per cohort, its reports and how often each bit is on.

    hushquery rappor sum-bits reports.csv --params params.csv --out counts.csv
    """
    from hushquery.local.rappor.files import read_params, write_counts
    from hushquery.local.rappor.files import sum_bits as counted

    agreed = read_params(params)
    with progress("counting"), _input(reports) as source:
        counts = counted(source, agreed)
    with _output(out) as target:
        write_counts(counts, target)
    total = int(counts[:, 0].sum())
    _done(out, {"reports": total, "cohorts": agreed.m}, f"{total:,} reports counted into {out}", as_json)


@app.command("hash-candidates")
def hash_candidates(
    params: ParamsFile,
    candidates: Annotated[str, argument("[FILE]", "Candidate strings, one per line; - is standard input.")] = "-",
    out: Out = "-",
    variant: VariantName = "google-python",
    as_json: JsonFlag = False,
) -> None:
    r"""Write map.csv: which bits each candidate turns on in each cohort.

    hushquery rappor hash-candidates words.txt --params params.csv --out map.csv
    """
    from hushquery.local.rappor.files import hash_candidates as hashed
    from hushquery.local.rappor.files import read_lines, read_params, write_map

    agreed = read_params(params)
    agreed.require(variant)
    with progress("hashing"), _input(candidates) as source, _output(out) as target:
        count = write_map(hashed(agreed, read_lines(source), variant), target)
    _done(out, {"candidates": count}, f"{count:,} candidates in {out}", as_json)


@app.command()
def decode(
    params: ParamsFile,
    counts: Annotated[str, option("FILE", "counts.csv, from sum-bits.")],
    candidates: Annotated[str, option("FILE", "map.csv, from hash-candidates.", "--map")],
    rule: Annotated[
        str,
        option(
            "RULE", "bonferroni: hardly ever a wrong string. two-sd: the reference's, more strings and more wrong ones."
        ),
    ] = "bonferroni",
    variant: VariantName = "google-python",
    results: Annotated[str | None, option("FILE", "Also write results.csv, in the reference's columns.")] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Estimate how many clients hold each candidate, and show those that the rule keeps.

    hushquery rappor decode --params params.csv --counts counts.csv --map map.csv --rule two-sd
    """
    from hushquery.local.rappor.decode import decode as decoded
    from hushquery.local.rappor.decode import write_results
    from hushquery.local.rappor.files import read_counts, read_map, read_params

    agreed = read_params(params)
    with progress("decoding"):
        decoding = decoded(
            agreed,
            read_counts(counts, agreed),
            read_map(candidates, agreed),
            rule=rule,  # type: ignore[arg-type]  # decode refuses other names
            variant=variant,
        )
    for warning in decoding.warnings:
        warn(warning)
    if results is not None:
        with _output(results) as target:
            write_results(decoding, target)
    emit({**decoding.to_json(), "rule": rule, **_costs(agreed, variant)}, str(decoding), as_json)


@app.command()
def plan(
    clients: Annotated[int, option("N", "Clients that send one report each.")],
    params: Annotated[
        str | None, option("FILE", "params.csv; by default k=128 h=2 m=128 p=.25 q=.75 f=.5.", "--params")
    ] = None,
    metrics: Annotated[int, option("N", "Metrics collected from each client.")] = 100,
    candidates: Annotated[int, option("N", "Strings that will be looked for.")] = 100,
    rule: Annotated[str, option("RULE", "two-sd or bonferroni.")] = "two-sd",
    power: Annotated[float, option("P", "How often a value of that count must be found.")] = 0.85,
    variant: VariantName = "native",
    as_json: JsonFlag = False,
) -> None:
    r"""Forecast the smallest count that can be seen, and what each metric costs a client. Spends nothing.

    hushquery rappor plan --clients 14000000
    """
    from hushquery.local.rappor.files import read_params
    from hushquery.local.rappor.plan import LECTURE, forecast

    expected = forecast(
        clients,
        LECTURE if params is None else read_params(params),
        metrics=metrics,
        candidates=candidates,
        rule=rule,  # type: ignore[arg-type]  # forecast refuses other names
        power=power,
        variant=variant,
    )
    emit(expected.to_json(), str(expected), as_json)


def _devices(params: Params, variant: str, task: str, key: str | None) -> Callable[[str], Encoder]:
    import hmac

    from hushquery.local.rappor.response import Encoder

    secret = None if key is None else _key(key)
    first = Encoder(params, bytes(32), variant, task=task.encode())
    if variant == "native" and secret is None:
        why, fix = "a client's name is no secret", "Give a file of random bytes"
        raise UsageError("the native variant needs --key", why=why, fix=fix)
    return lambda client: first.another(
        client.encode() if secret is None else hmac.digest(secret, client.encode(), "sha256")
    )


def _key(path: str) -> bytes:
    try:
        secret = Path(path).read_bytes()
    except OSError as error:
        raise Unavailable("the key can't be read", why=error.strerror or "", fix="Check the path") from None
    if len(secret) < 16:
        raise UsageError("the key is too short", why="it has fewer than 16 bytes", fix="Draw 32 random bytes")
    return secret


def _costs(params: Params, variant: str) -> dict[str, float | None]:
    from math import isfinite

    ever, one = params.permanent_epsilon(variant), params.instant_epsilon(variant)
    return {
        "epsilon_permanent": ever if isfinite(ever) else None,
        "epsilon_report": one if isfinite(one) else None,
        "bloom_false_positive_rate": params.bloom_false_positive_rate,
    }


def _done(out: str, data: dict[str, object], text: str, as_json: bool) -> None:
    """Print what was written, unless the file itself went to standard output."""
    if out != "-":
        emit({"file": out, **data}, text, as_json)


@contextmanager
def _input(path: str) -> Iterator[str | TextIO]:
    if path != "-":
        yield path
        return
    import io

    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="")
    try:
        yield lines
    finally:
        lines.detach()


@contextmanager
def _output(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdout
        return
    unfinished = Path(path).with_name(Path(path).name + ".unfinished")
    try:
        with writing("the output", Unavailable):
            with unfinished.open("w", encoding="utf-8", newline="") as target:
                yield target
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
