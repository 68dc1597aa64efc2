"""The command line of sweeps: ``python -m lib.sweep COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from lib.sweep.driver import default_folder
from lib.sweep.driver import run as run_sweep
from lib.sweep.plain import SweepError, one_line, read_value
from lib.sweep.specification import Sweep, load_specification
from lib.sweep.store import Store
from lib.sweep.table import clean as remove_records
from lib.sweep.table import collect as make_table
from lib.sweep.table import plan as make_plan
from lib.sweep.table import plot as draw
from lib.sweep.table import store_result, write_table

_SPECIFICATION = click.argument("specification", metavar="SPEC.yml", type=click.Path(path_type=Path))
_OUTPUT = click.option(
    "--output",
    "-o",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where the records are (default: sweep-results/NAME).",
)


def _bad_input_is_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """Answer bad input with one line and exit status 2."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (SweepError, OSError) as error:  # or the disk is full, or the folder is gone
            click.echo(f"error: {one_line(error)}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            click.echo("\ninterrupted; what is finished is kept; the same command goes on from there", err=True)
            sys.exit(130)

    return wrapped


def _open(specification: Path, output: Path | None) -> tuple[Sweep, Store]:
    sweep = load_specification(specification)
    return sweep, Store(output or default_folder(sweep))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Execute a notebook of the book once for every point of a grid of its parameters."""


@main.command("list")
@click.argument("folder", default="sweeps", type=click.Path(path_type=Path))
@_bad_input_is_one_line
def list_specifications(folder: Path) -> None:
    """List the specifications in a folder (default: sweeps)."""
    if not folder.is_dir():
        raise SweepError(f"folder: {folder} is not a folder")
    for path in sorted(folder.rglob("*.yml")):
        try:
            sweep = load_specification(path)
            click.echo(f"{path}: {len(sweep.points)} points of {sweep.notebook.stem}: {sweep.specification.title}")
        except SweepError as error:
            click.echo(f"{path}: not valid: {error}")


@main.command()
@_SPECIFICATION
@_OUTPUT
@click.option("--workers", type=click.IntRange(1), default=1, help="Share the estimated time among so many.")
@_bad_input_is_one_line
def plan(specification: Path, output: Path | None, workers: int) -> None:
    """Show what would be run, and for how long, without running anything."""
    sweep, store = _open(specification, output)
    for point in sweep.points[:10]:
        click.echo(f"  {point.label}")
    if len(sweep.points) > 10:
        click.echo(f"  and {len(sweep.points) - 10} more")
    _print_plan(make_plan(sweep, store, workers), workers)


@main.command()
@_SPECIFICATION
@_OUTPUT
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Use a running Dask scheduler.")
@click.option("--workers", type=click.IntRange(1), help="Local processes (default: one per core).")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of this machine, one process on each.")
@click.option("--first", type=click.IntRange(1), help="Run at most so many points, to learn how long one takes.")
@click.option("--quiet", is_flag=True, help="No progress bar, for logs.")
@_bad_input_is_one_line
def run(
    specification: Path,
    output: Path | None,
    scheduler: str | None,
    workers: int | None,
    gpus: int,
    first: int | None,
    quiet: bool,
) -> None:
    """Run every point that is not finished, then write the table.

    The exit status is 0 if all points have finished, 1 if some failed, 2 if the input is wrong.
    """
    sweep, store = _open(specification, output)
    options = {"scheduler": scheduler, "workers": workers, "gpus": gpus, "first": first}
    report = partial(tqdm.write, file=sys.stderr)
    outcome = run_sweep(sweep, store, report=report, quiet=quiet, **options)
    paths = write_table(make_table(sweep, store), store)
    left = outcome.points - outcome.before - outcome.now - len(outcome.failures)
    click.echo(
        f"{outcome.points} points: {outcome.now} finished now, {outcome.before} before, "
        f"{len(outcome.failures)} failed, {left} left; table: {paths[0]} and {paths[1].name}"
    )
    sys.exit(1 if outcome.failures else 0)


@main.command()
@_SPECIFICATION
@_OUTPUT
@_bad_input_is_one_line
def status(specification: Path, output: Path | None) -> None:
    """Count finished, failed and waiting points, and name the failures."""
    sweep, store = _open(specification, output)
    frame = make_table(sweep, store)
    _print_plan(make_plan(sweep, store), 1)
    if len(frame):
        names = [name for name in frame.columns if name in sweep.swept]
        for row in frame[frame["state"] == "failed"].to_dict("records"):
            place = ", ".join(f"{name}={row[name]}" for name in names)
            click.echo(f"failed: {place}: {row['error']} (notebook: {store.points / row['key']}.ipynb)")


@main.command()
@_SPECIFICATION
@_OUTPUT
@_bad_input_is_one_line
def collect(specification: Path, output: Path | None) -> None:
    """Write the table of all points that have run, as Parquet and as CSV."""
    sweep, store = _open(specification, output)
    frame = make_table(sweep, store)
    for path in write_table(frame, store):
        click.echo(f"{len(frame)} rows: {path}")


@main.command("store")
@_SPECIFICATION
@_OUTPUT
@click.option("--to", required=True, type=click.Path(path_type=Path), help="The file, as data/results/NAME/x.parquet.")
@_bad_input_is_one_line
def store_command(specification: Path, output: Path | None, to: Path) -> None:
    """Store the table of a sweep whose every point has finished, with its provenance, for a chapter to read."""
    sweep, store = _open(specification, output)
    frame = store_result(sweep, store, specification, to)
    click.echo(f"{len(frame)} rows: {to} (commit {frame.attrs['commit']})")


@main.command()
@_SPECIFICATION
@_OUTPUT
@click.option("--x", required=True, help="The parameter on the horizontal axis.")
@click.option("--y", required=True, help="The recorded number on the vertical axis.")
@click.option("--by", help="A parameter with one line per value.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Draw only points with this value.")
@click.option("--log", default="", metavar="xy", help="Axes with a logarithmic scale.")
@click.option("--to", type=click.Path(path_type=Path), help="The picture (default: plot.png in the folder).")
@_bad_input_is_one_line
def plot(
    specification: Path,
    output: Path | None,
    x: str,
    y: str,
    by: str | None,
    where: tuple[str, ...],
    log: str,
    to: Path | None,
) -> None:
    """Draw any recorded number against any parameter, with a band over seeds and repeats."""
    sweep, store = _open(specification, output)
    for item in where:
        if "=" not in item:
            raise SweepError(f"where: must be NAME=VALUE, got {item!r}")
    chosen = {
        name: read_value(value, f"where: the value of {name}")
        for name, _, value in (item.partition("=") for item in where)
    }
    figure = draw(sweep, make_table(sweep, store), x, y, by, chosen, log)
    target = to or store.folder / "plot.png"
    target = target if target.suffix else target.with_name(f"{target.name}.png")
    try:
        figure.savefig(target)
    except (OSError, ValueError) as error:
        raise SweepError(f"to: cannot write {target}: {' '.join(str(error).split())}") from None
    click.echo(str(target))


@main.command()
@_SPECIFICATION
@_OUTPUT
@click.option("--all", "everything", is_flag=True, help="Remove the records of present points too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_bad_input_is_one_line
def clean(specification: Path, output: Path | None, everything: bool, yes: bool) -> None:
    """Remove records that belong to no present point (an older notebook, other parameters)."""
    sweep, store = _open(specification, output)
    if everything and not yes:
        click.confirm(f"Remove all records in {store.folder}?", abort=True)
    click.echo(f"removed {remove_records(sweep, store, everything)} files")


def _print_plan(state: dict[str, Any], workers: int) -> None:
    counts = ", ".join(f"{state[name]} {name}" for name in ("finished", "failed", "waiting"))
    left = state["left"]
    if state["finished"] == state["points"]:
        time = "nothing left to do"
    elif left is None:
        time = "time unknown before a first run (run --first 1)"
    else:
        time = f"about {left / 60:.1f} min left with {workers} worker{'' if workers == 1 else 's'}"
    click.echo(f"{state['points']} points: {counts}; {time}")


if __name__ == "__main__":
    main(prog_name="python -m lib.sweep")
