"""Results of a notebook that are worth keeping: named numbers, arrays and tables, and how a chapter reads them back.

:func:`record` puts them into the notebook's outputs, where :func:`read_results` finds them; ``python -m lib.sweep``
collects them over many runs of the notebook and stores them as one Parquet table with its provenance, and
:func:`stored` reads that. Evidence for a claim
is recorded by :func:`lib.page.evidence.settle`.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lib import ROOT
from lib.page.evidence import MIME_TYPE as EVIDENCE
from lib.page.evidence import display_data
from lib.page.expectations import MIME_TYPE as EXPECTATION

if TYPE_CHECKING:
    import pandas as pd

MIME_TYPE = "application/vnd.symmetry-book.result+json"
FOLDER = ROOT / "data" / "results"


def record(name: str, value: Any) -> None:
    """Store a number, an array or a table in the output of the notebook's cell, under a name.

    ``python -m lib.sweep`` makes a column of it, with one entry per run: a number or a (nested) list. A table
    becomes a column ``name.column`` for each of its columns. Outside a notebook nothing happens beyond the checks.

    The name is small letters, digits and underscores, as ``"mmd_error"``; the value a real number, a tensor, array or
    sequence of real numbers, or a pandas DataFrame of numbers and texts.

    >>> record("slope", -0.5)
    >>> record("errors", np.zeros((4, 200)))
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"name must be small letters, digits and underscores, got {name!r}")
    if hasattr(value, "columns"):
        if not len(value.columns):
            raise ValueError(f"value of {name!r} must not be a table without columns")
        encoded = {"columns": {f"{name}.{key}": _encode(f"{name}.{key}", value[key]) for key in value}}
        shape = f" ({len(value)} rows: {', '.join(map(str, value))})"
    else:
        encoded = _encode(name, value)
        shape = f" ({' × '.join(map(str, encoded['shape']))})" if isinstance(encoded, dict) else ""
    display_data({"text/plain": f"recorded: {name}{shape}", MIME_TYPE: {"name": name, "value": encoded}})


def decode(value: Any) -> Any:
    """Return what :func:`record` stored: a float, or an array (of dtype object for texts)."""
    if not isinstance(value, dict):
        return float(value)
    if value["dtype"] == "text":
        return np.array(value["data"], dtype=object)
    return np.frombuffer(base64.b64decode(value["data"]), value["dtype"]).reshape(value["shape"])


def read_results(notebook: Any) -> dict[str, Any]:
    """Return everything that an executed notebook recorded, as JSON holds it: numbers (NaN as a text), arrays.

    For each check of each claim ``ID.check`` is the worst measured value, ``ID.check.median`` the median and
    ``ID.check.control`` the control value closest to the bound; ``ID.holds`` is 1 or 0. ``expect: WHAT`` is 1 or 0
    for an expectation. What :func:`record` stored has its own names; no two results may share one.
    """
    outputs = [output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", [])]
    found: list[tuple[str, Any]] = []
    expected: dict[str, int] = {}
    for data in outputs:
        if MIME_TYPE in data:
            name, value = data[MIME_TYPE]["name"], data[MIME_TYPE]["value"]
            found += (value["columns"] if isinstance(value, dict) and "columns" in value else {name: value}).items()
        if EXPECTATION in data:
            name, holds = f"expect: {data[EXPECTATION]['what']}", int(data[EXPECTATION]["holds"])
            found += [] if name in expected else [(name, None)]
            expected[name] = min(expected.get(name, 1), holds)
        if EVIDENCE in data:
            claim, measured, control = (data[EVIDENCE][part] for part in ("id", "measured", "control"))
            found.append((f"{claim}.holds", int(data[EVIDENCE]["holds"])))
            for check, values in measured.items():
                each = {"": values["worst"], ".median": values["median"], ".control": control[check]["worst"]}
                found += [(f"{claim}.{check}{part}", value) for part, value in each.items()]
    if len(numbers := dict(found)) < len(found):
        twice = next(name for name, count in Counter(name for name, _ in found).items() if count > 1)
        raise ValueError(f"the notebook records {twice!r} twice; a column has one number per point")
    return numbers | expected


def stored(name: str, table: str = "", folder: Path = FOLDER) -> pd.DataFrame:
    """Return a stored table, one row per execution of a run, whose arrays are NumPy arrays of their own shape again.

    Its ``attrs`` are the commit, date, specification, device, versions, points and seconds. The name is
    ``CHAPTER/RUN``, as in ``data/results/CHAPTER/RUN.parquet``. If ``table`` names one that every execution recorded,
    its rows are returned instead, those of all executions below each other, with the parameters that differ from the
    table's own columns beside them.

    >>> stored("implicit_bias_in_fourier_space/digit_margins", "runs")["one_minus_cosine"].max() < 1e-6
    np.True_
    """
    import pandas as pd

    path = folder / f"{name}.parquet"
    if not path.is_file():
        known = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.parquet"))
        raise ValueError(f"name must be one of {known}, got {name!r}")
    frame = pd.read_parquet(path)
    for column in (name for name in frame if frame[name].dtype == object):
        frame[column] = [_array(cell) if isinstance(cell, np.ndarray) else cell for cell in frame[column]]
    return _rows(frame, table) if table else frame


def _rows(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the rows of a table that every execution recorded, with the parameters beside them."""
    own = {column: column.removeprefix(f"{table}.") for column in frame if column.startswith(f"{table}.")}
    if not own:
        known = sorted({column.partition(".")[0] for column in frame if "." in column})
        raise ValueError(f"table must be one of {known}, got {table!r}")
    hidden = {"seconds", "repeat", *own.values()}
    beside = [c for c in frame if "." not in c and c not in hidden and not isinstance(frame[c].iloc[0], np.ndarray)]
    rows = frame[[*beside, *own]].explode(list(own), ignore_index=True).infer_objects().rename(columns=own)
    rows.attrs = frame.attrs
    return rows


def _array(cell: np.ndarray) -> np.ndarray:
    """Return nested arrays of arrays, as Parquet has them, as one array; ragged ones and texts stay as they are."""
    if cell.dtype != object or not len(cell) or not isinstance(cell[0], np.ndarray):
        return cell
    rows = [_array(row) for row in cell]
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else cell


def _encode(name: str, value: Any) -> Any:
    """Return a value as JSON: a number (infinities and NaN as texts), or dtype, shape and bytes of an array."""
    value = value.detach().cpu().numpy() if hasattr(value, "detach") else value
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"value of {name!r} must have one length in every row") from None
    if array.dtype.kind in "OUT" and array.ndim == 1 and all(isinstance(text, str) for text in value):
        return {"dtype": "text", "shape": list(array.shape), "data": array.tolist()}
    if array.dtype.kind not in "fiub":
        raise ValueError(f"value of {name!r} must be real numbers, got {str(value)[:80]!r}")
    if array.ndim == 0:
        number = float(array)
        return number if math.isfinite(number) else str(number)
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = base64.b64encode(little.tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}
