"""The root of the command line: which noun lives in which file."""

from __future__ import annotations

from typing import Annotated

import typer

from hushquery._version import __version__
from hushquery.cli import budget, collect, experiment, explain, rappor, stat, task
from hushquery.cli.audit import audit
from hushquery.cli.bench import bench
from hushquery.cli.blend import blend
from hushquery.cli.demo import demo
from hushquery.cli.doctor import doctor
from hushquery.cli.estimate import estimate
from hushquery.cli.head import head
from hushquery.cli.plan import plan
from hushquery.cli.randomize import randomize
from hushquery.cli.release import release
from hushquery.cli.serve import serve
from hushquery.cli.show import show
from hushquery.cli.site import site
from hushquery.cli.synth import synth
from hushquery.cli.trends import trends
from hushquery.cli.use import classify, correct, find, keywords, search, similar, suggest
from hushquery.cli.verify import export, verify

__all__ = ["app"]

#: The root command.
app = typer.Typer(
    name="hushquery",
    help="Learn what a crowd searches for and clicks on without learning what any one person searched for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"hushquery {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learn what a crowd searches for and clicks on without learning what any one person searched for."""
    del version


app.command()(demo)
app.command()(doctor)
for publishing in (synth, plan, release, verify, export, head, randomize, estimate, blend):
    app.command()(publishing)
for using in (show, search, suggest, correct, similar, find, keywords, classify, trends, site):
    app.command()(using)
app.command()(audit)
app.command()(bench)
app.command()(serve)
app.add_typer(stat.app)
app.add_typer(budget.app)
app.add_typer(explain.app)
app.add_typer(experiment.app)
app.add_typer(task.app)
app.add_typer(collect.app)
app.add_typer(rappor.app)
