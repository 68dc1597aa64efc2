"""What a sweep runs: a notebook, read without running it, and the points of a grid of its parameters."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import math
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Any, ClassVar, Literal, Optional, Union

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lib import ROOT
from lib.page.parameters import check_value, read_limits, unknown

BOOK = ROOT / "book"
_MOST = 1_000_000  # points
_VALUES = 100_000  # in a file
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}
_TYPES = _PLAIN | {"Literal": Literal, "Optional": Optional, "Union": Union, "Any": Any}
_Some = Field(min_length=1)


class SweepError(ValueError):
    """A sweep that cannot be run as it is written; the message is one line that names the field."""


class Specification(BaseModel):
    """A sweep. Every combination in ``grid`` meets every one of ``points`` and every one of ``seeds``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    notebook: str  # a chapter's name, a run's (runs/NAME), or a path from the folder of the specification
    title: str = ""  # what the sweep is for, in one line
    parameters: dict[str, Any] = {}  # with one value for all points
    grid: Annotated[dict[str, Annotated[list[Any], _Some]], _Some] = {}  # for each parameter the list of its values
    points: Annotated[list[dict[str, Any]], _Some] = []  # one by one, each a mapping of parameters to values
    seeds: Annotated[dict[str, Annotated[list[int], _Some]], Field(min_length=1, max_length=1)] = {}  # plot's band
    depends: list[str] = []  # files, or folders of files, that the notebook reads: if one changes, all points are new
    limit: Annotated[float, Field(gt=0, le=1e7)] | None = None  # seconds that one point may take
    retries: Annotated[int, Field(ge=0, le=100)] = 0  # how often a point that fails is tried again within one run


@dataclass(frozen=True)
class Sweep:
    """A specification with the notebook that it fits, the code that this rests on, and all points."""

    path: Path
    specification: Specification
    notebook: Path
    files: dict[str, Path]  # the modules that the notebook leads to, by name, and what it depends on
    code: str  # their digest, when they were read
    points: dict[str, dict[str, Any]]  # the parameters of each by its key, a digest of code and parameters

    @property
    def swept(self) -> list[str]:
        """The names of the parameters that differ between points, in the order of the specification."""
        spec = self.specification
        return list(dict.fromkeys([*spec.grid, *(name for point in spec.points for name in point), *spec.seeds]))


class _Loader(yaml.SafeLoader):
    """YAML 1.2 (its core schema), in which no field may be given twice."""

    yaml_implicit_resolvers: ClassVar[dict] = {}  # none of YAML 1.1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.MarkedYAMLError(problem=f"{twice[0]} is given twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        return int(node.value, {"0o": 8, "0x": 16}.get(node.value[:2], 10))


for _name, _form in {  # what a word without quotes is, if it is no text
    "null": r"|~|null|Null|NULL",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?\d+|0o[0-7]+|0x[\da-fA-F]+",
    "float": r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_form})\Z", re.ASCII), None)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_value(text: str, field: str) -> Any:
    """Return what a text means in YAML, made of texts, finite numbers, truth values, lists and mappings."""
    try:
        content = yaml.load(text, _Loader)
        _check_plain(content, field, "", itertools.count())
    except SweepError:
        raise
    except (yaml.YAMLError, TypeError, OverflowError, ValueError, RecursionError) as error:
        raise SweepError(f"{field}: {one_line(error)}") from None
    return content


def _check_plain(value: Any, root: str, place: str, count: Any) -> None:
    wrong = {
        "too many values": next(count) > _VALUES,
        "must be a text, a number, a list or a mapping": not isinstance(value, str | int | float | list | dict | None),
        "names must be texts": isinstance(value, dict) and not all(isinstance(name, str) for name in value),
        "integers must fit into 64 bits": isinstance(value, int) and not -(2**63) <= value < 2**63,
        "numbers must be finite": isinstance(value, float) and not math.isfinite(value),
        "must be a text that UTF-8 can hold": isinstance(value, str) and re.search("[\ud800-\udfff]", value),
    }
    if found := [words for words, applies in wrong.items() if applies]:
        raise SweepError(f"{one_line(place[1:]) if place else root}: {found[0]}, got {short(value)}")
    for name, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        _check_plain(item, root, f"{place}.{name}"[:100], count)


def one_line(error: object) -> str:
    """Return a message as one line."""
    text = " ".join(str(error).split())
    return type(error).__name__ if not text and isinstance(error, BaseException) else text


def label(point: dict[str, Any]) -> str:
    """Return a point in one line."""
    return one_line(", ".join(f"{name}={value}" for name, value in point.items())) or "the notebook as it is"


def load_specification(path: Path) -> Sweep:
    """Read a specification and validate all of it, without running anything; a ``SweepError`` names the field."""
    try:
        content = read_value(path.read_text(encoding="utf-8"), f"specification: {path.name}")
        spec = Specification.model_validate(content)
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"specification: cannot read {path}: {one_line(error)}") from None
    except ValidationError as error:
        raise SweepError(_first_problem(error)) from None
    pages = {page.relative_to(BOOK).with_suffix("").as_posix(): page for page in sorted(BOOK.glob("**/*.ipynb"))}
    notebook = Path(os.path.abspath(pages.get(spec.notebook, path.parent / spec.notebook)))
    if notebook.suffix != ".ipynb" or not os.path.isfile(notebook):
        raise SweepError(f"notebook: {unknown('.ipynb file, chapter or run', spec.notebook, pages)}")
    types, files = _check_parameters(spec, notebook), modules(notebook)
    for name in spec.depends:
        place = path.absolute().parent / name
        found = [file for file in (place, *sorted(place.rglob("*"))) if file.is_file()]
        if not found:
            raise SweepError(f"depends: there is no {place}")
        files |= {os.path.relpath(file, path.parent): file for file in found}
    axes = [[{name: value} for value in values] for name, values in (spec.grid | spec.seeds).items()]
    axes.insert(len(spec.grid), spec.points or [{}])
    if (count := math.prod(map(len, axes))) > _MOST:
        raise SweepError(f"grid: {count} points are more than the {_MOST} that one sweep may have")
    code, points = code_digest(notebook, files), {}
    for parts in itertools.product([spec.parameters], *axes):
        point = {name: _fit(types[name], value) for part in parts for name, value in part.items()}
        key = hashlib.sha256(json.dumps([code, sorted(point.items())], sort_keys=True).encode()).hexdigest()[:20]
        if points.setdefault(key, point) is not point:
            raise SweepError(f"points: {label(point)[:80]!r} occurs twice")
    return Sweep(path.absolute(), spec, notebook, files, code, points)


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False)
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")  # a misspelt field is missing too
    field = one_line(".".join(map(str, first["loc"])) or "specification")
    if first["type"] == "extra_forbidden":
        return f"{field}: {unknown('field', field, Specification.model_fields)}"
    return f"{field}: {one_line(first['msg'])}, got {short(first['input'])}"


def _check_parameters(spec: Specification, notebook: Path) -> dict[str, TypeAdapter | None]:
    """Refuse parameters that the notebook lacks, values of another type or out of limits, and names given twice."""
    types, sections = read_parameters(notebook), {}
    try:
        limits = read_limits(notebook)
    except (ValueError, SyntaxError) as error:
        raise SweepError(f"notebook: {one_line(error)}") from None
    given = [("parameters", name, [value]) for name, value in spec.parameters.items()]
    given += [("grid", *item) for item in spec.grid.items()] + [("seeds", *item) for item in spec.seeds.items()]
    given += [(f"points.{i}", name, [value]) for i, point in enumerate(spec.points) for name, value in point.items()]
    for place, name, values in given:
        field, section = one_line(f"{place}.{name}"), place.split(".")[0]
        if name not in types:
            raise SweepError(f"{field}: {unknown('parameter', name, types)}")
        if types[name] is None:
            raise SweepError(f"{field}: its type is none of {', '.join(_TYPES)}; write one, as in {name}: list = []")
        if sections.setdefault(name, section) != section:
            raise SweepError(f"{field}: the parameter is given in {sections[name]} already")
        for value in values:
            try:
                check_value(name, _fit(types[name], value), limits.get(name))
            except ValidationError as error:
                raise SweepError(f"{field}: {one_line(error.errors()[0]['msg'])}, got {short(value)}") from None
            except ValueError as error:
                raise SweepError(f"{place}: {one_line(error)}") from None
    return types


def _fit(adapter: Any, value: Any) -> Any:
    """Return a value of YAML as the type of a parameter (1 as 1.0 for a float)."""
    return adapter.validate_json(json.dumps(value), strict=True)


def read_cells(notebook: Path) -> list[tuple[list[str], str]]:
    """Return the tags and the source of a notebook's code cells; refuse one that is not Python's."""
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))
        about, cells = content["metadata"], [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        named = about.get("kernelspec", {}).get("language") or about.get("language_info", {}).get("name") or "python"
        found = [(cell["metadata"].get("tags", []), "".join(cell["source"])) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SweepError(f"notebook: cannot read {notebook.name}: {one_line(error)}") from None
    if named.lower() not in ("python", "ipython"):
        raise SweepError(f"notebook: {notebook.name} is in {named}; a sweep runs Python")
    return found


def read_parameters(notebook: Path) -> dict[str, TypeAdapter | None]:
    """Return the parameters of a notebook's ``parameters`` cell with validators of their types.

    A parameter without a type has that of its default. One whose type YAML or papermill cannot hold has ``None``.
    """
    found: dict[str, TypeAdapter | None] = {}
    source = next((source for tags, source in read_cells(notebook) if "parameters" in tags), "")
    for node in _parse(source, notebook.name).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in (target.id for target in targets if isinstance(target, ast.Name)):
            try:
                found[name] = TypeAdapter(_kind(node), config=ConfigDict(strict=True))
            except Exception:  # whatever stands there, it is no type of these
                found[name] = None
    return found


def _kind(node: Any) -> Any:
    """Return the type that a parameter is given, or that of its default."""
    if isinstance(node, ast.AnnAssign):
        text = node.annotation.value if isinstance(node.annotation, ast.Constant) else ast.unparse(node.annotation)
        return eval(str(text).replace("typing.", ""), {"__builtins__": {}}, _TYPES)  # it knows the names of types alone
    try:
        return _PLAIN.get(type(ast.literal_eval(node.value)).__name__, Any)
    except ValueError:  # computed
        return Any


def code_digest(notebook: Path, files: dict[str, Path]) -> str:
    """Return a SHA-256 of a notebook's code cells, of the modules that they lead to, and of what they depend on."""
    try:
        contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files.values()]
    except OSError as error:
        raise SweepError(f"depends: {one_line(error)}") from None
    sources = [source for _, source in read_cells(notebook)]
    return hashlib.sha256(json.dumps([sources, contents]).encode()).hexdigest()


def modules(notebook: Path) -> dict[str, Path]:
    """Return the modules that a notebook imports, directly or through others: those beside it and the book's.

    They are found in the source, nothing is run: a module that is imported under a computed name, or from elsewhere on
    Python's path, is not among them.
    """
    found: dict[str, Path] = {}
    waiting = {name for _, source in read_cells(notebook) for name in _imports(source, "", notebook.name)}
    while waiting:
        name = waiting.pop()
        places = [place.joinpath(*name.split(".")) for place in (notebook.parent, ROOT)]
        files = [file for place in places for file in (place / "__init__.py", place.parent / f"{place.name}.py")]
        path = next((file for file in files if file.is_file()), None)
        if path is not None and name not in found:
            found[name] = path
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            waiting |= _imports(path.read_text(encoding="utf-8"), package, path.name)
    return dict(sorted(found.items()))


@cache
def _imports(source: str, package: str, where: str) -> set[str]:
    """Return all names that a program of a package may import as modules, with the packages that hold them."""
    names: set[str] = set()
    for node in ast.walk(_parse(source, where)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            names |= {".".join([*base, *more]) for more in ([], *([alias.name] for alias in node.names))}
    return {".".join(name.split(".")[: k + 1]) for name in names for k in range(name.count(".") + 1)}


def _parse(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        from IPython.core.inputtransformer2 import TransformerManager

        plain = TransformerManager().transform_cell(source)  # without magic commands
        if plain.strip() == source.strip():
            raise SweepError(f"notebook: {where} is not Python: {one_line(error)}") from None
        return _parse(plain, where)
