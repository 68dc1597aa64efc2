"""Numbers of a page that a reader in JupyterLab changes with sliders, computed anew at each move.

Knows no mathematics.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lib.progress import is_watched


def explore(function: Callable[..., None], **choices: Sequence[Any]) -> None:
    """Call a function that prints; in JupyterLab again at each move, with a slider, menu or box for each argument.

    Where nobody can move anything (the built book, tests, papermill), it is called once.

    Every argument starts at its default. The choices for it, among them the default, are numbers, which make a slider,
    names, which make a menu, or ``False`` and ``True``, a box to tick.

    >>> def square(n=3):
    ...     print(f"{n}² = {n**2}")
    >>> explore(square, n=range(10))
    3² = 9
    """
    if is_watched():
        from IPython.display import display

        display(_controls(function, choices))
    else:
        function()


def _controls(function: Callable[..., None], choices: Mapping[str, Sequence[Any]]) -> Any:
    """Return sliders, menus and boxes above what the function prints."""
    from ipywidgets import Checkbox, Dropdown, SelectionSlider, interactive

    controls = {}
    for name, options in choices.items():
        look = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
        look["value"] = inspect.signature(function).parameters[name].default
        if all(isinstance(option, bool) for option in options):
            controls[name] = Checkbox(**look)
        elif any(isinstance(option, str) for option in options):
            controls[name] = Dropdown(options=list(options), **look)
        else:
            controls[name] = SelectionSlider(options=list(options), continuous_update=False, **look)
    return interactive(function, **controls)
