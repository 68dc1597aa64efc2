"""The table of a sweep, one row per point that has run, and a drawing of any of its numbers."""

from __future__ import annotations

import io
import json
import math
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib.page.parameters import unknown
from lib.page.results import decode
from lib.sweep.plain import SweepError, short
from lib.sweep.specification import Sweep
from lib.sweep.store import LIB, Store, point_keys

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("table.parquet", "table.csv")
NOT_FINITE = "not_finite"
_LAST = ("seconds", "attempts", "device", "error")


def collect(sweep: Sweep, store: Store) -> pd.DataFrame:
    """Return the table of all points that have run, in the order of the specification.

    Columns: ``key``, ``state``, the parameters, ``repeat``, every recorded number or array (as lists), ``seconds``,
    ``attempts``, ``device``, ``error``, and the versions of Python, torch, NumPy and ``lib``. Lists and mappings are
    JSON texts. A number with the name of another column has ``recorded.`` before its name. Parquet and CSV show NaN as
    they show a number that was not recorded: where some are not finite, ``not_finite`` names them.
    """
    import pandas as pd

    rows, numbers = [], {}
    given = [*sweep.specification.parameters, *sweep.swept]
    taken = {"key", "state", *given, "repeat", NOT_FINITE, *_LAST}
    for key, point in point_keys(sweep).items():
        record = store.read(key)
        if record is None:
            continue
        known = {n: f"recorded.{n}" if n in taken or n.startswith("version.") else n for n in record["numbers"]}
        recorded = {known[n]: _column(value) for n, value in record["numbers"].items()}
        numbers |= dict.fromkeys(recorded)
        if bad := [
            f"{name}={value}"
            for name, value in recorded.items()
            if isinstance(value, float) and not math.isfinite(value)
        ]:
            recorded[NOT_FINITE] = ", ".join(bad)
        row = {"key": key, "state": record["state"]} | {n: _plain(v) for n, v in point.parameters.items()}
        row |= {"repeat": point.repeat} | recorded | {name: record[name] for name in _LAST}
        rows.append(row | {f"version.{name}": value for name, value in record["versions"].items()})
    if not rows:
        return pd.DataFrame(columns=["key", "state", *given, "repeat", *_LAST])
    frame = pd.DataFrame(rows)
    tail = [c for c in frame.columns if c in (NOT_FINITE, *_LAST) or c.startswith("version.")]
    head = [c for c in frame.columns if c not in numbers and c not in tail]
    return frame[head + list(numbers) + tail]


def _column(value: Any) -> Any:
    """Return a result as a column holds it: a number, or lists in lists."""
    value = decode(value)
    return value if isinstance(value, float) else value.tolist()


def write_table(frame: pd.DataFrame, store: Store) -> list[Path]:
    """Write a table as Parquet and, without its arrays, as CSV into the folder of the sweep; return both paths."""
    store.prepare()
    parquet = io.BytesIO()
    frame.to_parquet(parquet, index=False)
    text = _without_arrays(frame).to_csv(index=False).encode()
    return [store.replace(name, content) for name, content in zip(TABLES, (parquet.getvalue(), text), strict=True)]


def _without_arrays(frame: pd.DataFrame) -> pd.DataFrame:
    arrays = [name for name in frame.columns if frame[name].map(lambda cell: isinstance(cell, list)).any()]
    return frame.drop(columns=arrays)


def store_result(sweep: Sweep, store: Store, specification: Path, target: Path) -> pd.DataFrame:
    """Write the table of a sweep as Parquet where the book reads it, and return it.

    Its ``attrs``, which Parquet keeps, say how it was made: the commit (with the words "with changes" if the code of
    the notebook or of ``lib`` differs from it), the date, the specification, the devices, the versions, the number of
    points and the seconds that they took in all. Keys, states and errors are left out.

    Raises
    ------
    SweepError
        A point has failed or has not run with the present code.
    """
    frame = collect(sweep, store)
    left = len(sweep.points) - int((frame["state"] == "finished").sum())
    if left:
        raise SweepError(f"store: {left} of {len(sweep.points)} points have not finished with the present code")
    versions = [name for name in frame.columns if name.startswith("version.")]
    attrs = {
        "commit": commit_of(sweep.notebook, LIB),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "specification": specification.read_text(encoding="utf-8"),
        "device": sorted(set(frame["device"])),
        "versions": {name.removeprefix("version."): sorted(set(frame[name])) for name in versions},
        "points": len(frame),
        "seconds": round(float(frame["seconds"].sum())),
    }
    frame = frame.drop(columns=["key", "state", "attempts", "device", "error", *versions])
    frame = frame.drop(columns=[name for name in frame.columns if name == "repeat" and not frame[name].any()])
    frame.attrs = attrs
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        frame.to_parquet(temporary, index=False)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return frame


def commit_of(*paths: Path) -> str:
    """Return the commit that is checked out, followed by "with changes" when files differ from it."""
    call = {"cwd": LIB, "capture_output": True, "text": True, "check": True}
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], **call).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "--", *paths], **call).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}{' with changes' if changed else ''}"


def plan(sweep: Sweep, store: Store, workers: int = 1) -> dict[str, Any]:
    """Return how many points are finished, failed and waiting, and the seconds that the waiting ones should take.

    The estimate is the median time of the points that have finished, shared among ``workers``; ``None`` before the
    first.
    """
    records = [store.read(key) for key in point_keys(sweep)]
    states = [record["state"] if record else "waiting" for record in records]
    times = [record["seconds"] for record in records if record and record["state"] == "finished"]
    left = len(states) - states.count("finished")
    seconds = statistics.median(times) * -(-left // workers) if times else None
    return {"points": len(states)} | {s: states.count(s) for s in ("finished", "failed", "waiting")} | {"left": seconds}


def clean(sweep: Sweep, store: Store, everything: bool = False) -> int:
    """Remove the records that belong to no present point of the sweep, or all; return the number of files removed.

    Raises
    ------
    SweepError
        The sweep is running.
    """
    with store.lock():
        removed = store.sweep_up()
        removed += store.forget(set() if everything else set(point_keys(sweep)))
        for name in TABLES if everything else ():
            removed += (store.folder / name).exists()
            (store.folder / name).unlink(missing_ok=True)
    return removed


def plot(
    sweep: Sweep,
    frame: pd.DataFrame,
    x: str,
    y: str,
    by: str | None = None,
    where: dict[str, Any] | None = None,
    log: str = "",
) -> Any:
    """Draw a recorded number against a parameter: the mean over seeds and repeats, in a band from least to greatest.

    Numbers that are not finite are left out, and the label of the axis says how many they were.

    Parameters
    ----------
    sweep, frame
        The sweep and its table, from :func:`collect`.
    x, y
        The columns of the axes.
    by
        A parameter that has one line for each of its values.
    where
        Values of further parameters; only their points are drawn.
    log
        The axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    SweepError
        A column is missing or not numeric, no point is left, or a further parameter varies, over which a mean would
        mislead.
    """
    import matplotlib.pyplot as plt
    from pandas.api.types import is_numeric_dtype

    from lib.page.figures import style

    frame = _select(_without_arrays(frame), where or {})
    for option, name in (("x", x), ("y", y), ("by", by)):
        if name is not None and (name not in frame or (option != "by" and not is_numeric_dtype(frame[name]))):
            numeric = [c for c in frame.columns if is_numeric_dtype(frame[c])]
            raise SweepError(f"{option}: {unknown('column of numbers', name, numeric)}")
    wild = [text for text in frame.get(NOT_FINITE, []) if isinstance(text, str) and f", {y}=" in f", {text}"]
    frame = frame.replace([math.inf, -math.inf], math.nan).dropna(subset=[x, y] if by is None else [x, y, by])
    if frame.empty:
        raise SweepError(f"y: no point that is left has {x}, {y}{f' and {by}' if by else ''}")
    for name in sweep.swept:
        if name not in (x, by, *sweep.specification.seeds) and frame[name].nunique(dropna=False) > 1:
            raise SweepError(f"where: {name} varies too; choose one of {_values(frame[name])}")
    if log not in ("", "x", "y", "xy", "yx"):
        raise SweepError(f"log: must be x, y or xy, got {log!r}")
    with style():
        fig, ax = plt.subplots()
        for value, group in [("", frame)] if by is None else frame.groupby(by):
            band = group.groupby(x)[y].agg(["mean", "min", "max"])
            (line,) = ax.plot(band.index, band["mean"], "o-", ms=4, label=f"{by} = {value}" if by else None)
            ax.fill_between(band.index, band["min"], band["max"], color=line.get_color(), alpha=0.2, lw=0)
        label = f"{y} ({len(wild)} not finite)" if wild else y
        ax.set(xlabel=x, ylabel=label, **{f"{axis}scale": "log" for axis in log})
        if by:
            ax.legend()
    return fig


def _select(frame: pd.DataFrame, where: dict[str, Any]) -> pd.DataFrame:
    if frame.empty or not (frame["state"] == "finished").any():
        raise SweepError("plot: no point has finished yet")
    frame = frame[frame["state"] == "finished"]
    for name, value in where.items():
        if name not in frame:
            raise SweepError(f"where: {unknown('column', name, frame)}")
        kept = frame[frame[name].isna() if value is None else frame[name] == _plain(value)]
        if kept.empty:
            raise SweepError(f"where: no point has {name}={short(value)}; it takes {_values(frame[name])}")
        frame = kept
    return frame


def _values(column: pd.Series) -> str:
    """Return the values of a column in one line, at most ten of them."""
    values = [None if value != value else value for value in column.drop_duplicates().tolist()]
    return f"{values[:10]}" + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value
