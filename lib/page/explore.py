"""Numbers of a page that a reader in JupyterLab changes with sliders, computed anew at each move.

Knows no mathematics.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from lib.progress import is_watched


def explore(function: Callable[..., None], **choices: Sequence[Any]) -> None:
    """Call a function that prints; in JupyterLab again at each move, with a slider, menu or box for each argument.

    Where nobody can move anything (the built book, tests, papermill), it is called once.

    Parameters
    ----------
    function
        What prints. Every argument starts at its default.
    **choices
        For each argument what can be chosen, among it the default: numbers make a slider, names a menu, ``False`` and
        ``True`` a box to tick.

    Examples
    --------
    >>> def square(n=3):
    ...     print(f"{n}² = {n**2}")
    >>> explore(square, n=range(10))
    3² = 9
    """
    defaults = {name: given.default for name, given in inspect.signature(function).parameters.items()}
    if is_watched():
        from IPython.display import display

        display(_controls(function, {name: (defaults[name], list(values)) for name, values in choices.items()}))
    else:
        function()


def _controls(function: Callable[..., None], choices: dict[str, tuple[Any, list[Any]]]) -> Any:
    """Return sliders, menus and boxes above what the function prints."""
    from ipywidgets import Checkbox, Dropdown, SelectionSlider, interactive

    controls = {}
    for name, (value, options) in choices.items():
        look = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
        if set(options) == {False, True} and all(isinstance(option, bool) for option in options):
            controls[name] = Checkbox(value=value, **look)
        elif any(isinstance(option, str) for option in options):
            controls[name] = Dropdown(options=options, value=value, **look)
        else:
            controls[name] = SelectionSlider(options=options, value=value, continuous_update=False, **look)
    return interactive(function, **controls)
