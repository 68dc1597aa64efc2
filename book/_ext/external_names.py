"""Names outside this package that the API pages mention, with the page that documents each.

Rules in place of the projects' own inventories, because the book builds without a network. A name is only linked if it
exists in the installed package, so a misspelt one still is a warning.
"""

from __future__ import annotations

import builtins
import pkgutil
import sys
from typing import Any

from docutils import nodes

_PYTHON = "https://docs.python.org/3/library/"
_TORCH = "https://docs.pytorch.org/docs/stable/"
# Classes that have no page of their own, and what type hints write for others.
_PAGES = {
    "torch.Tensor": f"{_TORCH}tensors.html#torch.Tensor",
    "torch.device": f"{_TORCH}tensor_attributes.html#torch.device",
    "torch.dtype": f"{_TORCH}tensor_attributes.html#torch.dtype",
    "pandas.DataFrame": "https://pandas.pydata.org/docs/reference/api/pandas.DataFrame.html",
    "cvxpy.Problem": "https://www.cvxpy.org/api_reference/cvxpy.problems.html#cvxpy.Problem",
    "filelock._unix.UnixFileLock": "https://py-filelock.readthedocs.io/en/latest/api.html#filelock.FileLock",
    "pydantic.type_adapter.TypeAdapter": "https://docs.pydantic.dev/latest/api/type_adapter/",
    "playwright.sync_api.Browser": "https://playwright.dev/python/docs/api/class-browser",
    "IPython.core.display.Markdown": "https://ipython.readthedocs.io/en/stable/api/generated/IPython.display.html",
    "matplotlib.figure.Figure": "https://matplotlib.org/stable/api/figure_api.html#matplotlib.figure.Figure",
}
_ALIASES = {
    "callable": "collections.abc.Callable",
    "torch._C.Generator": "torch.Generator",
    "Tensor": "torch.Tensor",
    "Browser": "playwright.sync_api.Browser",
    "Path": "pathlib.Path",
    "pd.DataFrame": "pandas.DataFrame",
    "np.ndarray": "numpy.ndarray",
}
_GENERATED = {
    "torch": f"{_TORCH}generated/",
    "numpy": "https://numpy.org/doc/stable/reference/generated/",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/",
}


def external_page(name: str) -> str | None:
    """Return the address of the page that documents a name of Python, PyTorch, NumPy, SciPy or matplotlib."""
    name = _ALIASES.get(name, name)
    if name in _PAGES:
        return _PAGES[name]
    if name in ("None", "True", "False", "Ellipsis"):
        return f"{_PYTHON}constants.html#{name}"
    if (builtin := getattr(builtins, name, None)) is not None:
        is_error = isinstance(builtin, type) and issubclass(builtin, BaseException)
        return f"{_PYTHON}{'exceptions' if is_error else 'functions'}.html#{name}"
    module = name.rpartition(".")[0]
    root = module.partition(".")[0]
    if root not in _GENERATED and root not in sys.stdlib_module_names:
        return None
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return None
    return f"{_GENERATED[root]}{name}.html" if root in _GENERATED else f"{_PYTHON}{module}.html#{name}"


def resolve_external(app: Any, env: Any, node: Any, content: nodes.Node) -> nodes.reference | None:
    """Link an external name to its documentation."""
    page = external_page(node["reftarget"]) if node.get("refdomain") == "py" else None
    if page is None:
        return None
    return nodes.reference("", "", content, internal=False, refuri=page, classes=["external"])
