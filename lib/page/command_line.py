"""What the commands ``python -m lib.experiments.…`` share: a mistake of the user ends in one clear line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from lib.checks import check_int
from lib.images.datasets import DataUnavailable


@contextmanager
def clear_errors(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Turn errors that a user can mend into the parser's message and exit status 2, without a traceback.

    These are values that are not allowed (``ValueError``), files and folders that cannot be used (``OSError``) and data
    that cannot be had (:class:`lib.images.datasets.DataUnavailable`). All other errors are ours and keep their
    traceback.

    Parameters
    ----------
    parser
        The command's parser.

    Raises
    ------
    SystemExit
        With status 2, after one of these errors.
    """
    try:
        yield
    except (ValueError, OSError, DataUnavailable) as error:
        parser.error(str(error))


def use_threads(count: int) -> None:
    """Let torch use this many threads.

    Raises
    ------
    ValueError
        Fewer than one, or more than 4096.
    """
    import torch

    torch.set_num_threads(check_int("threads", count, maximum=4096))
