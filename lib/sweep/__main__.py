"""The command line of sweeps, ``python -m lib.sweep COMMAND``, and the table that it makes."""

from __future__ import annotations

import io
import json
import math
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from lib.page.parameters import unknown
from lib.page.results import decode
from lib.sweep.points import Store, ask_page, cluster, commit_of, run_points
from lib.sweep.specification import Sweep, SweepError, label, load_specification, one_line, read_value, short

if TYPE_CHECKING:
    import pandas as pd

_RUN = ("seconds", "attempts", "device", "host", "started", "commit", "error")  # columns that say how a point ran
_VERSIONS = ("torch", "numpy", "python", "lib")


_path = partial(click.option, type=click.Path(path_type=Path))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Execute a notebook once for every point of a grid of its parameters."""


def _command(function: Any) -> Any:
    """Make a command of a function of a sweep, its folder and options; bad input is one line and exit status 2."""

    def opened(specification: Path, output: Path | None, **options: Any) -> None:
        try:
            sweep = load_specification(specification)
            function(sweep, Store(output or sweep.path.parent / "sweep-results" / sweep.path.stem, sweep), **options)
        except (SweepError, OSError) as error:  # or the folder is gone
            click.echo(f"error: {one_line(error)}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            click.echo("\ninterrupted; what is finished is kept; the same command goes on from there", err=True)
            sys.exit(130)

    opened.__doc__, opened.__click_params__ = function.__doc__, getattr(function, "__click_params__", [])
    where = "Where the points are kept (default: sweep-results/NAME beside SPEC.yml)."
    opened = _path("--output", "-o", metavar="FOLDER", help=where)(opened)
    opened = click.argument("specification", metavar="SPEC.yml", type=click.Path(path_type=Path))(opened)
    return main.command(function.__name__)(opened)


@_command
@click.option("--workers", type=click.IntRange(1), default=1, help="Share the estimated time among so many.")
def plan(sweep: Sweep, store: Store, workers: int) -> None:
    """Check everything, and show what would be run, on which code, and for how long; no point is run."""
    ask_page(sweep)
    for point in [*sweep.points.values()][:10]:
        click.echo(f"  {label(point)}")
    if len(sweep.points) > 10:
        click.echo(f"  and {len(sweep.points) - 10} more")
    beside = [name for name in sweep.files if name.split(".")[0] != "lib"]
    ours = f"{len(sweep.files) - len(beside)} modules of lib"
    click.echo(f"a point is new if one of these changes: {', '.join([sweep.notebook.name, *beside, ours])}")
    _count(sweep, store, workers)


@_command
def status(sweep: Sweep, store: Store) -> None:
    """Count finished, failed, running and waiting points, and say where the notebooks of those are."""
    for key, record in _count(sweep, store).items():
        if record["error"]:
            click.echo(f"failed: {label(sweep.points[key])}: {record['error']} (notebook: {record['path']})")
    for key, path in store.running().items():
        click.echo(f"running: {label(sweep.points.get(key, {}))} (notebook so far: {path})")


def _count(sweep: Sweep, store: Store, workers: int = 1) -> dict[str, dict[str, Any]]:
    records, running = _records(sweep, store), store.running().keys() & sweep.points
    times = [record["seconds"] for record in records.values() if not record["error"]]
    left = len(sweep.points) - len(times)
    time = "nothing left to do" if not left else "time unknown before a first run (run --first 1)"
    if left and times:
        minutes = statistics.median(times) * -(-left // workers) / 60
        time = f"about {minutes:.1f} min left with {workers} worker{'' if workers == 1 else 's'}"
    failed = {key for key, record in records.items() if record["error"]} - running
    counts = f"{len(times)} finished, {len(failed)} failed, {len(running)} running"
    click.echo(f"{len(sweep.points)} points: {counts}, {left - len(failed) - len(running)} waiting; {time}")
    return records


@_command
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Use a running Dask scheduler, and its workers.")
@click.option("--workers", type=click.IntRange(1), help="Processes on this machine (default: one per core).")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of this machine, one process on each.")
@click.option("--first", type=click.IntRange(1), help="Run at most so many points, to learn how long one takes.")
@click.option("--failed", is_flag=True, help="Run only the points that have failed before.")
@click.option("--quiet", is_flag=True, help="No progress bar, for logs.")
def run(
    sweep: Sweep, store: Store, first: int | None, failed: bool, quiet: bool, scheduler: str | None, **local: Any
) -> None:
    """Run every point that is not finished, then write the table.

    The exit status is 0 if all points have finished, 1 if some failed, 2 if the input is wrong.
    """
    if sum(map(bool, (scheduler, *local.values()))) > 1:
        raise SweepError("workers: processes here, GPUs here, or a scheduler with its own workers: only one of them")
    if local["gpus"]:
        import torch

        if local["gpus"] > (present := torch.cuda.device_count()):
            raise SweepError(f"gpus: there are {present} on this machine, got {local['gpus']}")
    report, done = partial(tqdm.write, file=sys.stderr), []
    with store.lock():
        before = _records(sweep, store)
        waiting = [key for key in sweep.points if (before[key]["error"] if key in before else not failed)][:first]
        if waiting:
            with cluster(scheduler, **local) as client:
                report(f"dashboard: {client.dashboard_link}")
                if not client.nthreads():
                    report("no worker has joined the scheduler yet; waiting for one")
                ended = run_points(client, waiting, sweep, store, None if scheduler else local["gpus"] > 0, report)
                done = list(tqdm(ended, total=len(waiting), unit="point", disable=quiet, dynamic_ncols=True))
        frame, records, now = collect(sweep, store), _records(sweep, store), sum(done)
        store.write("table.parquet", _parquet(frame))
        store.write("table.csv", _without_arrays(frame).to_csv(index=False).encode())
    failed = sum(record["error"] is not None for record in records.values())
    counts = f"{now} finished now, {len(records) - failed - now} before, {failed} failed"
    left, table = len(sweep.points) - len(records), store.folder / "table.parquet"
    click.echo(f"{len(sweep.points)} points: {counts}, {left} left; table: {table} and table.csv")
    sys.exit(0 if all(done) else 1)


def _records(sweep: Sweep, store: Store) -> dict[str, dict[str, Any]]:
    return {key: record for key in sweep.points if (record := store.read(key)) is not None}


def collect(sweep: Sweep, store: Store) -> pd.DataFrame:
    """Return the table of all points that have run, in the order of the specification.

    Columns: ``key``, ``state``, the parameters, every recorded number or array (as lists), seconds, attempts, device,
    host, time, commit and error of the run, and the versions of Python, torch, NumPy and ``lib``. Lists and mappings
    are JSON texts. Of two columns with one name a parameter keeps it, a number is called ``recorded.NAME``, and what
    is said of the run ``run.NAME``. Parquet and CSV show NaN as they show a number that was not recorded: where some
    are not finite, ``not_finite`` names them.
    """
    import pandas as pd

    given = [*sweep.specification.parameters, *sweep.swept]
    own = {name: f"run.{name}" if name in given else name for name in ("key", "state", "not_finite", *_RUN)}
    taken, rows, numbers = {*given, *own.values()}, [], {}
    for key, record in _records(sweep, store).items():
        found = {}
        for name, value in record["numbers"].items():
            value = decode(value)
            name = f"recorded.{name}" if name in taken or name.startswith("version.") else name
            found[name] = value if isinstance(value, float) else value.tolist()
        wild = [f"{n}={v}" for n, v in found.items() if isinstance(v, float) and not math.isfinite(v)]
        row = {own["key"]: key, own["state"]: "failed" if record["error"] else "finished"}
        row |= {name: _plain(value) for name, value in sweep.points[key].items()} | found
        row |= ({own["not_finite"]: ", ".join(wild)} if wild else {}) | {own[n]: record.get(n) for n in _RUN}
        rows.append(row | {f"version.{n}": v for n in _VERSIONS if (v := record["packages"].get(n))})
        numbers |= dict.fromkeys(found)
    frame = (
        pd.DataFrame(rows) if rows else pd.DataFrame(columns=[own["key"], own["state"], *given, *map(own.get, _RUN)])
    )
    tail = [c for c in frame if c in (own["not_finite"], *map(own.get, _RUN)) or c.startswith("version.")]
    return frame[[c for c in frame if c not in numbers and c not in tail] + list(numbers) + tail]


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def _without_arrays(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=[c for c in frame if frame[c].map(lambda cell: isinstance(cell, list)).any()])


def _parquet(frame: pd.DataFrame) -> bytes:
    import pyarrow as pa

    for name in frame:
        try:
            pa.array(frame[name], from_pandas=True)
        except (pa.ArrowException, OverflowError):
            kinds = " here, ".join(sorted({_kind(cell) for cell in frame[name] if cell is not None and cell == cell}))
            raise SweepError(f"record: {name} is {kinds} there; one column holds one kind") from None
    frame.to_parquet(file := io.BytesIO(), index=False)
    return file.getvalue()


def _kind(cell: Any) -> str:
    inside, lists = [cell], ""
    while isinstance(inside[0], list) and inside[0]:
        inside, lists = [item for part in inside for item in part], f"{lists}a list of "
    kinds = sorted({"int beyond 2^63" if type(i) is int and i >= 2**63 else type(i).__name__ for i in inside})
    return lists + "/".join(kinds)


@_command
@_path("--to", metavar="FILE", required=True, help="The file, as data/results/NAME/x.parquet.")
def store(sweep: Sweep, store: Store, to: Path) -> None:
    """Store the table of a sweep whose every point has finished, with its provenance, for a chapter to read."""
    records = [record for record in _records(sweep, store).values() if not record["error"]]
    if left := len(sweep.points) - len(records):
        raise SweepError(f"store: {left} of {len(sweep.points)} points have not finished with the present code")
    left_out, frame = {"key", "state", *_RUN[1:]} - {*next(iter(sweep.points.values()))}, collect(sweep, store)
    frame = frame.drop(columns=[c for c in frame if c in left_out or c.startswith(("version.", "run."))])
    frame.attrs = {
        "commit": commit_of(sweep),
        "date": min(record["started"] for record in records)[:10],
        "specification": sweep.path.read_text(encoding="utf-8"),
        "device": sorted({record["device"] for record in records}),
        "versions": {name: sorted({record["packages"].get(name, "") for record in records}) for name in _VERSIONS},
        "points": len(records),
        "seconds": round(sum(record["seconds"] for record in records)),
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    store.write(to.absolute(), _parquet(frame))
    click.echo(f"{len(frame)} rows: {to} (commit {frame.attrs['commit']})")


@_command
@click.option("--x", required=True, help="The parameter on the horizontal axis.")
@click.option("--y", required=True, help="The recorded number on the vertical axis.")
@click.option("--by", help="A parameter with one line per value.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Draw only points with this value.")
@click.option("--log", type=click.Choice(["", "x", "y", "xy"]), default="", help="Axes with a logarithmic scale.")
@_path("--to", metavar="FILE", help="The picture (default: plot.png in the folder).")
def plot(
    sweep: Sweep, store: Store, x: str, y: str, by: str | None, where: tuple[str, ...], log: str, to: Path | None
) -> None:
    """Draw a recorded number against a parameter: the mean over seeds, in a band from least to greatest.

    Numbers that are not finite are left out, and the label of the axis says how many they were.
    """
    import matplotlib.pyplot as plt
    from pandas.api.types import is_numeric_dtype

    from lib.page.figures import style

    frame = collect(sweep, store)
    frame = _without_arrays(frame[frame["run.error" if "run.error" in frame else "error"].isna()])
    for name, equals, text in (item.partition("=") for item in where):
        if not equals or name not in frame:
            raise SweepError(f"where: must be NAME=VALUE; {unknown('column', name, frame)}")
        value = read_value(text, f"where: the value of {name}")
        values = frame[name].drop_duplicates().tolist()[:10]
        frame = frame[frame[name].isna() if value is None else frame[name] == _plain(value)]
        if frame.empty:
            raise SweepError(f"where: no point has {name}={short(value)}; it takes {values}")
    numeric = [c for c in frame if is_numeric_dtype(frame[c])]
    for option, name, known in (("x", x, numeric), ("y", y, numeric), ("by", by or x, frame)):
        if name not in known:
            raise SweepError(f"{option}: {unknown('column of numbers', name, numeric)}")
    wild = frame.get("not_finite", frame[x].astype(str)).map(lambda text: f", {y}=" in f", {text}").sum()
    frame = frame.replace([math.inf, -math.inf], math.nan).dropna(subset=[x, y, by or x])
    if frame.empty:
        raise SweepError(f"y: no point that has finished and is left has {x}, {y}{f' and {by}' if by else ''}")
    for name in sweep.swept:
        if name not in (x, by, *sweep.specification.seeds) and frame[name].nunique(dropna=False) > 1:
            raise SweepError(f"where: {name} varies too; choose one of {frame[name].drop_duplicates().tolist()[:10]}")
    with style():
        fig, ax = plt.subplots()
        for value, group in [("", frame)] if by is None else frame.groupby(by):
            band = group.groupby(x)[y].agg(["mean", "min", "max"])
            (line,) = ax.plot(band.index, band["mean"], "o-", ms=4, label=_words(f"{by} = {value}"))
            ax.fill_between(band.index, band["min"], band["max"], color=line.get_color(), alpha=0.2, lw=0)
        ax.set(xlabel=_words(x), ylabel=_words(f"{y} ({wild} not finite)" if wild else y))
        ax.set(**{f"{axis}scale": "log" for axis in log})
        if by:
            ax.legend()
    target = to or store.folder / "plot.png"
    target = target if target.suffix else target.with_name(f"{target.name}.png")
    try:
        fig.savefig(target)
    except (OSError, ValueError) as error:
        raise SweepError(f"to: cannot write {target}: {one_line(error)}") from None
    click.echo(str(target))


def _words(text: str) -> str:
    """Return a text for a figure, in which dollars are dollars and begin no formula."""
    return text.replace("$", r"\$")


if __name__ == "__main__":
    main(prog_name="python -m lib.sweep")
