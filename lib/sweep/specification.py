"""What a sweep runs: a notebook, its fixed parameters, and the points of a grid, a list or random draws."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from lib.page.parameters import Limit, check_value, read_limits, unknown
from lib.sweep.notebook import BOOK, TYPES, find_notebook, read_parameters
from lib.sweep.plain import SweepError, one_line, read_yaml, short

_MOST_POINTS = 1_000_000
_LONGEST = 1e7  # seconds
_COLUMNS = frozenset({"key", "state", "repeat", "seconds", "attempts", "device", "error"})  # the table's own

Positive = Annotated[int, Field(ge=1)]
Ends = Annotated[list[float], Field(min_length=2, max_length=2)]
Values = Annotated[list[Any], Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Distribution(_Model):
    """Where a random parameter comes from: exactly one of four laws.

    ``uniform: [a, b]`` and ``log_uniform: [a, b]`` are continuous, ``integers: [a, b]`` includes both ends,
    ``choice: [...]`` picks one of the values.
    """

    uniform: Ends | None = None
    log_uniform: Ends | None = None
    integers: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    choice: Values | None = None

    @model_validator(mode="after")
    def _one_law(self) -> Distribution:
        given = {name: value for name, value in self if value is not None}
        if len(given) != 1:
            raise ValueError("exactly one of uniform, log_uniform, integers, choice is needed")
        name, value = next(iter(given.items()))
        if name != "choice" and not value[0] < value[1]:
            raise ValueError(f"{name} needs a lower and a higher end, got {value}")
        if name == "log_uniform" and value[0] <= 0:
            raise ValueError(f"log_uniform needs positive ends, got {value}")
        if name == "uniform" and not math.isfinite(value[1] - value[0]):
            raise ValueError(f"uniform needs ends that are closer, got {value}")
        return self

    @property
    def values(self) -> list[Any]:
        """The values of a choice, or the ends of an interval."""
        return self.choice or self.uniform or self.log_uniform or self.integers or []

    def draw(self, source: random.Random) -> Any:
        """Return one value."""
        if self.uniform:
            return source.uniform(*self.uniform)
        if self.log_uniform:
            return math.exp(source.uniform(*map(math.log, self.log_uniform)))
        if self.integers:
            return source.randint(*self.integers)
        return source.choice(self.choice or [])


class RandomDraws(_Model):
    """``count`` points with independently drawn parameters; the same ``seed`` gives the same points."""

    count: Positive
    draw: Annotated[dict[str, Distribution], Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)] = 0


class Specification(_Model):
    """A sweep. Every grid combination meets every listed point, every random draw and every seed, ``repeats`` times.

    Attributes
    ----------
    notebook
        A chapter's name, a run's (``runs/NAME``), or the path of a notebook relative to the file of the specification.
    title
        What the sweep is for, in one line.
    parameters
        Parameters with one value for all points.
    grid
        For each parameter the list of its values; all combinations are run.
    points
        Points one by one, each a mapping of parameters to values.
    random
        Randomly drawn points.
    seeds
        One parameter and its values, over which ``plot`` draws a band.
    repeats
        How often every point is run.
    limit
        Seconds that one point may take; without it there is no limit.
    retries
        How often a point that fails is tried again within one run.
    """

    notebook: str
    title: str = ""
    parameters: dict[str, Any] = {}
    grid: Annotated[dict[str, Values], Field(min_length=1)] = {}
    points: Annotated[list[dict[str, Any]], Field(min_length=1)] = []
    random: RandomDraws | None = None
    seeds: Annotated[dict[str, Annotated[list[int], Field(min_length=1)]], Field(min_length=1, max_length=1)] = {}
    repeats: Positive = 1
    limit: Annotated[float, Field(gt=0, le=_LONGEST)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 0


@dataclass(frozen=True)
class Point:
    """One execution of the notebook: its parameters and the number of the repeat."""

    parameters: dict[str, Any]
    repeat: int = 0

    @property
    def label(self) -> str:
        """The point in one line."""
        words = [f"{name}={value}" for name, value in self.parameters.items()]
        return ", ".join(words + ([f"repeat {self.repeat}"] if self.repeat else [])) or "the notebook as it is"


@dataclass(frozen=True)
class Sweep:
    """A validated specification with the notebook it was found to fit and all its points."""

    name: str
    specification: Specification
    notebook: Path
    points: tuple[Point, ...]

    @property
    def swept(self) -> list[str]:
        """The names of the parameters that differ between points, in the order of the specification."""
        spec = self.specification
        listed = [name for point in spec.points for name in point]
        drawn = list(spec.random.draw) if spec.random else []
        return list(dict.fromkeys([*spec.grid, *listed, *drawn, *spec.seeds]))


def load_specification(path: Path) -> Sweep:
    """Read a specification and validate all of it, without running anything.

    Raises
    ------
    SweepError
        The file cannot be read or is not a specification; the notebook does not exist; a parameter is unknown, has no
        type, has another type or is given twice; a point occurs twice. One line, naming the field.
    """
    content = read_yaml(path)
    try:
        specification = Specification.model_validate(content)
    except ValidationError as error:
        raise SweepError(_first_problem(error)) from None
    notebook = find_notebook(specification.notebook, path.parent)
    adapters = read_parameters(notebook)
    try:
        limits = read_limits(notebook)
    except ValueError as error:
        raise SweepError(f"notebook: {one_line(error)}") from None
    _check_parameters(specification, adapters, limits)
    place, shipped = path.resolve().with_suffix(""), BOOK.parent / "sweeps"
    name = str(place.relative_to(shipped)) if place.is_relative_to(shipped) else path.stem
    return Sweep(name, specification, notebook, tuple(_check_duplicates(expand(specification), adapters)))


def expand(specification: Specification) -> Iterator[Point]:
    """Yield every point of a specification, in a fixed order, the repeats innermost.

    Raises
    ------
    SweepError
        More than a million points.
    """
    axes = [[{name: value} for value in values] for name, values in specification.grid.items()]
    seeds = [{name: value} for name, values in specification.seeds.items() for value in values] or [{}]
    drawn = specification.random.count if specification.random else 1
    count = math.prod(map(len, [*axes, specification.points or [{}], seeds])) * drawn * specification.repeats
    if count > _MOST_POINTS:
        raise SweepError(f"grid: {count} points are more than the {_MOST_POINTS} that one sweep may have")
    draws: list[dict[str, Any]] = [{}]
    if specification.random:
        source = random.Random(specification.random.seed)
        names = specification.random.draw
        draws = [{n: d.draw(source) for n, d in names.items()} for _ in range(specification.random.count)]
    for parts in itertools.product(*axes, specification.points or [{}], draws, seeds):
        parameters = dict(specification.parameters)
        for part in parts:
            parameters |= part
        for repeat in range(specification.repeats):
            yield Point(parameters, repeat)


def _check_parameters(
    specification: Specification, adapters: dict[str, TypeAdapter | None], limits: dict[str, Limit]
) -> None:
    """Refuse parameters that the notebook lacks, values of another type or out of limits, and names given twice."""
    given: list[tuple[str, str, list[Any]]] = [("parameters", n, [v]) for n, v in specification.parameters.items()]
    given += [("grid", n, v) for n, v in specification.grid.items()]
    given += [(f"points.{i}", n, [v]) for i, p in enumerate(specification.points) for n, v in p.items()]
    given += [("seeds", n, v) for n, v in specification.seeds.items()]
    if specification.random:
        laws = specification.random.draw.items()
        given += [("random.draw", n, law.values) for n, law in laws]
    places: dict[str, str] = {}
    for place, name, values in given:
        field = one_line(f"{place}.{name}")
        if name not in adapters:
            raise SweepError(f"{field}: {unknown('parameter', name, adapters)}")
        if adapters[name] is None:
            raise SweepError(f"{field}: the notebook gives it no type made of {', '.join(TYPES)} and Literal")
        if name in _COLUMNS:
            raise SweepError(f"{field}: the table has a column of its own with this name; rename the parameter")
        section = place.split(".")[0]
        if places.setdefault(name, section) != section:
            raise SweepError(f"{field}: the parameter is given in {places[name]} already")
        for value in values:
            try:
                check_value(name, _fit(adapters[name], value), limits.get(name))
            except ValidationError as error:
                raise SweepError(f"{field}: {one_line(error.errors()[0]['msg'])}, got {short(value)}") from None
            except ValueError as error:
                raise SweepError(f"{place}: {one_line(error)}") from None


def _fit(adapter: TypeAdapter | None, value: Any) -> Any:
    """Return a value of YAML as the type of a parameter (1 as 1.0 for a float)."""
    assert adapter is not None  # checked with the names
    return adapter.validate_json(json.dumps(value), strict=True)


def _check_duplicates(points: Iterator[Point], adapters: dict[str, TypeAdapter | None]) -> Iterator[Point]:
    """Yield the points with their values in the notebook's types; refuse one that occurs twice."""
    seen = set()
    for point in points:
        point = Point({name: _fit(adapters[name], value) for name, value in point.parameters.items()}, point.repeat)
        text = json.dumps([point.parameters, point.repeat], sort_keys=True)
        if text in seen:
            raise SweepError(f"points: {short(point.label)} occurs twice; use repeats to run a point several times")
        seen.add(text)
        yield point


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    first = min(problems, key=lambda p: p["type"] != "extra_forbidden")  # a misspelt field is missing too
    field = one_line(".".join(str(part) for part in first["loc"]) or "specification")
    if first["type"] == "extra_forbidden":
        model = {1: Specification, 2: RandomDraws}.get(len(first["loc"]), Distribution)
        return f"{field}: {unknown('field', str(first['loc'][-1]), model.model_fields)}"
    if first["type"] == "missing":
        return f"{field}: this field is needed"
    return f"{field}: {one_line(first['msg'].removeprefix('Value error, '))}, got {short(first['input'])}"
