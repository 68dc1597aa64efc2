"""Plain values: what a specification and a table may hold, read from YAML and shown in one line."""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

_MOST_VALUES = 1_000_000
_DEEPEST = 20


class SweepError(ValueError):
    """A sweep that cannot be run as it is written; the message is one line that names the field."""


@dataclass(frozen=True)
class _Unclear:
    """A word without quotes that YAML 1.1 and 1.2 read differently: 010, 1:30, 1_000, yes, 2020-01-01."""

    text: str

    def __repr__(self) -> str:
        return f"{self.text} (not quoted)"


class _Loader(yaml.SafeLoader):
    """YAML 1.2 (its core schema) with plain values only, in which no field may be given twice."""

    yaml_implicit_resolvers: ClassVar[dict] = {}  # none of YAML 1.1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(problem=f"{name} is given twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


_UNCLEAR = "!unclear"
_FORMS = {  # the first that fits a word without quotes says what it is
    _UNCLEAR: r"[-+]?(0[\d_]+|0[bo][0-7_]+|\d[\d_]*_[\d_.]*|\d[\d_]*(:\d+)+(\.\d*)?)"
    r"|(?i:yes|no|on|off)|\d{4}-\d\d?-\d\d?.*",
    "tag:yaml.org,2002:null": r"|~|null|Null|NULL",
    "tag:yaml.org,2002:bool": r"true|True|TRUE|false|False|FALSE",
    "tag:yaml.org,2002:int": r"[-+]?\d+|0x[\da-fA-F]+",
    "tag:yaml.org,2002:float": r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "tag:yaml.org,2002:merge": r"<<",
}
for _tag, _form in _FORMS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_form})\Z", re.ASCII), None)
_Loader.add_constructor(_UNCLEAR, lambda loader, node: _Unclear(node.value))


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file: a mapping made of texts, numbers, truth values, lists and mappings.

    Raises
    ------
    SweepError
        The file cannot be read, is not YAML, gives a field twice, or holds anything else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SweepError(f"specification: cannot read {path}: {one_line(error)}") from None
    content = read_value(text, f"specification: {path.name}", "specification")
    if not isinstance(content, dict):
        raise SweepError(f"specification: {path.name} must hold a mapping of fields, got {type(content).__name__}")
    return content


def read_value(text: str, field: str, place: str | None = None) -> Any:
    """Return what a text means in YAML, made of texts, numbers, truth values, lists and mappings.

    Raises
    ------
    SweepError
        It is not YAML (the message begins with ``field``), or holds anything else (with ``place``).
    """
    try:
        content = yaml.load(text, _Loader)
    except RecursionError:
        raise SweepError(f"{field} is nested too deeply") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise SweepError(f"{field} is not YAML: {one_line(error)}") from None
    _check_plain(content, place or field)
    return content


def _check_plain(content: Any, root: str) -> None:
    """Refuse what a table cannot hold: words that are not clear, objects of YAML, huge integers, endless nesting."""
    waiting, count = [((), content)], 0
    while waiting:
        place, value = waiting.pop()
        field, count = one_line(".".join(place)) if place else root, count + 1
        if len(place) > _DEEPEST or count > _MOST_VALUES:
            raise SweepError(f"{one_line('.'.join(place[:2]))}: nested more than {_DEEPEST} deep, or too many values")
        if isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    raise SweepError(f"{field}: names must be texts, got {short(name)}")
            waiting += [((*place, name), item) for name, item in value.items()]
        elif isinstance(value, list):
            waiting += [((*place, str(i)), item) for i, item in enumerate(value)]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise SweepError(f"{field}: integers must fit into 64 bits, got {short(value)}")
        elif isinstance(value, _Unclear):
            means = "means different things in YAML 1.1 and 1.2; quote a text, write a number plainly, true or false"
            raise SweepError(f"{field}: {short(value)} {means}")
        elif not isinstance(value, (str, int, float, type(None))):
            raise SweepError(f"{field}: must be a text, a number, a list or a mapping, got {short(value)}")


def short(value: Any) -> str:
    """Return a value in at most 80 characters; never writes out what is endless."""
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 80, 80


def one_line(error: object) -> str:
    """Return a message as one line."""
    text = " ".join(str(error).split())
    return type(error).__name__ if not text and isinstance(error, BaseException) else text
