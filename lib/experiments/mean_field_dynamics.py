"""Chapter *Mean-field dynamics*: settings of its live grid; the stored one comes from the run ``trained_clouds``."""

from __future__ import annotations

from dataclasses import dataclass

from lib.checks import check_float, check_int
from lib.experiments.mean_field_grid import Ends, Table, measure, train_networks
from lib.page.parameters import independent_seeds
from lib.training.mean_field_descent import Descent


@dataclass(frozen=True)
class Settings:
    """What the chapter runs live.

    Attributes
    ----------
    largest : int
        Largest number of particles N, at least 20; the others are 5, 10, 20, … doubling.
    seeds : int
        Repetitions, at least 4.
    time : float
        T; training takes N·T steps.
    workers : int
        Trainings at the same time.
    seed : int
        Number of the independent set of repetitions.
    """

    largest: int = 80
    seeds: int = 10
    time: float = 20.0
    workers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("largest", self.largest, minimum=20)
        check_int("seeds", self.seeds, minimum=4)
        check_float("time", self.time, minimum=0.0)
        check_int("workers", self.workers)
        check_int("seed", self.seed, minimum=0)

    @property
    def sizes(self) -> list[int]:
        """The numbers of particles."""
        return [5 * 2**k for k in range((self.largest // 5).bit_length())]

    @property
    def plan(self) -> dict[int, list[int]]:
        """The seeds at every number of particles, none of them twice."""
        seeds = independent_seeds(self.seed, self.seeds * len(self.sizes))
        return {n: seeds[k * self.seeds : (k + 1) * self.seeds] for k, n in enumerate(self.sizes)}

    def run(self) -> tuple[dict[int, Ends], Table]:
        """Train the whole grid; return the trained clouds and their distances, by N."""
        descent = Descent(time=self.time)
        ends = {n: train_networks(n, seeds, descent=descent, workers=self.workers) for n, seeds in self.plan.items()}
        return ends, {n: measure(end) for n, end in ends.items()}
