"""Training of two players on images: settings in, players out, with checkpoints from which a killed run goes on.

The game is that of Birrell, Katsoulakis, Rey-Bellet, Zhu (2022, "Structure-preserving GANs"); see
:mod:`lib.gans.settings` for what can be set. On one machine, with one number of threads, a run depends on its settings
and data only, to the last bit: not on when it was killed and started again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from lib.device import usable_device
from lib.gans.image_players import Discriminator, Generator
from lib.gans.settings import Settings, check_data
from lib.gans.state import Divergence, Run, read_checkpoint


@dataclass(frozen=True)
class Trained:
    """What a training leaves.

    Attributes
    ----------
    settings : lib.gans.settings.Settings
        Its settings.
    generator : lib.gans.image_players.Generator
        With averaged weights, in evaluation mode: the one to sample from.
    latest : lib.gans.image_players.Generator
        With the weights after the last step; not finite, perhaps, after a divergence.
    discriminator : lib.gans.image_players.Discriminator
        After the last step.
    status : str
        "finished"; "stopped" when asked to; "diverged".
    message : str
        Why it diverged, otherwise empty.
    iterations : int
        Steps of the generator that were done.
    history : dict of Tensor
        ``discriminator_loss``, ``generator_loss`` and ``margin`` (least real score minus largest generated score of a
        batch) at every iteration, float64.
    samples : dict of int to Tensor
        Iteration → images of the averaged generator, always from the same noise, uint8 ``(samples, c, h, w)``.
    seconds : float
        Time spent on training, over all calls.
    """

    settings: Settings
    generator: Generator
    latest: Generator
    discriminator: Discriminator
    status: str
    message: str
    iterations: int
    history: dict[str, Tensor]
    samples: dict[int, Tensor]
    seconds: float


def train(
    settings: Settings,
    images: Tensor,
    labels: Tensor | None,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    stop: Callable[[int], bool] | None = None,
) -> Trained:
    """Train two players on images.

    Parameters
    ----------
    settings
        The game.
    images
        Training images with values in [−1, 1], float32, shape ``(n, c, h, h)``.
    labels
        Classes, int64, shape ``(n,)``; None if there is only one. Generated batches get the classes of real ones.
    device
        Where to train.
    checkpoint
        A file that is renewed, whole or not at all, every ``save_every`` iterations and at the end; if it exists, the
        training goes on from it. None: no file.
    progress
        Whether to show a bar with the time left on standard error.
    stop
        Called with the number of iterations done after each; if it returns True, the run is stored and ends.

    Returns
    -------
    Trained
        Players, history and how the run ended; a divergence is a status, not an error.

    Raises
    ------
    TypeError, ValueError
        Bad input; a checkpoint that is incomplete, or of other settings, data or another kind of device.
    """
    x, y = check_data(settings, images, labels)
    run = Run(settings, x, y, usable_device("device", device))
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        run.restore(read_checkpoint(path), path)
    with (
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
        tqdm(total=settings.iterations, initial=run.iteration, disable=not progress, file=sys.stderr) as bar,
    ):
        bar.set_description(f"{settings.pairing}, {settings.group}, seed {settings.seed}")
        _advance(run, path, bar, stop)
    return _result(run)


def _advance(run: Run, path: Path | None, bar: Any, stop: Callable[[int], bool] | None) -> None:
    """Do the iterations that are left, with samples and checkpoints; set the status."""
    s, before, began = run.settings, run.seconds, time.perf_counter()
    while run.status == "running":
        if run.iteration < s.iterations:
            try:
                run.step()
            except Divergence as error:
                run.status, run.message = "diverged", str(error)
            bar.update(run.iteration - bar.n)
        if run.status == "running" and run.iteration >= s.iterations:
            run.status = "finished"
        elif run.status == "running" and stop is not None and stop(run.iteration):
            run.status = "stopped"
        if run.status in ("finished", "diverged") or run.iteration % s.sample_every == 0:
            run.sample()
        run.seconds = before + time.perf_counter() - began
        if path is not None and (run.status != "running" or run.iteration % s.save_every == 0):
            run.store(path)


def _result(run: Run) -> Trained:
    rows = torch.tensor(run.history, dtype=torch.float64, device="cpu").reshape(-1, 3)
    history = dict(zip(("discriminator_loss", "generator_loss", "margin"), rows.unbind(-1), strict=True))
    players = (run.average, run.generator, run.discriminator)
    how = (run.status, run.message, run.iteration)
    return Trained(run.settings, *players, *how, history, dict(run.samples), run.seconds)
