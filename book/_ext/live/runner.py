"""Runs a capsule and says, in plain strings, what it printed, the lines of its panel, and where it failed.

The same file runs under CPython, in the tests, and in the page, in Brython.
"""

SIGNS = {
    "==": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


def words(value):
    """Return a number as the panel shows it; a fraction that is too long to read is rounded."""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 24 else f"≈ {float(value):.3g}"


def run(source, execute, write, row, end):
    """Run the source.

    Parameters
    ----------
    source
        The text of a capsule.
    execute
        Runs it with a given ``print`` and returns its names.
    write, row, end
        Are called with what is printed; with label, value, sign, bound and whether the line holds; with the error,
        or "", and its line, or 0.
    """

    def say(*values, sep=" ", end="\n"):
        write(sep.join([str(value) for value in values]) + end)

    try:
        names = execute(source, say)
        if not names.get("panel"):
            raise NameError("the code makes no panel = [(label, value, relation, bound), ...]")
        for label, value, sign, bound in names["panel"]:
            row(str(label), words(value), sign, words(bound), bool(SIGNS[sign](value, bound)))
        end("", 0)
    except SyntaxError as error:
        end(f"{type(error).__name__}: {error.msg}", error.lineno or 0)
    except Exception as error:
        end(f"{type(error).__name__}: {error}", line_of(error))


def line_of(error):
    """Return the last line of the capsule itself that the error came through."""
    line, step = 0, error.__traceback__
    while step is not None:
        if "capsule" in step.tb_frame.f_code.co_filename:
            line = step.tb_lineno
        step = step.tb_next
    return line


def in_cpython(source, say):
    """Run a capsule here."""
    names = {"__name__": "capsule", "print": say}
    exec(compile(source, "capsule", "exec"), names)
    return names
