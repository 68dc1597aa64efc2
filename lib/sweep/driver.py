"""Run all points of a sweep on a Dask cluster, finished points excepted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.checks import check_int
from lib.sweep.specification import Sweep, SweepError
from lib.sweep.store import Store, point_keys
from lib.sweep.worker import Task, execute_point

_ANSWER = 10  # seconds that a scheduler has to answer


@dataclass(frozen=True)
class Outcome:
    """What one run of a sweep did: points in all, finished before, finished now, and the records of failures."""

    points: int
    before: int
    now: int
    failures: list[dict[str, Any]]


def run(
    sweep: Sweep,
    store: Store,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    gpus: int = 0,
    first: int | None = None,
    report: Callable[[str], None] = lambda message: None,
    quiet: bool = True,
) -> Outcome:
    """Execute every point that has no finished record, and store a record of each.

    Parameters
    ----------
    sweep, store
        What to run and where the records go.
    scheduler
        The address of a running Dask scheduler, as ``"tcp://host:8786"``; by default a cluster of single-threaded
        processes is started on this machine and stopped at the end.
    workers
        The number of local processes; by default one per CPU core this process may use, or one per GPU.
    gpus
        The number of GPUs of each machine, shared out one per process; 0 for none.
    first
        Run at most so many points.
    report
        Called with every line worth telling.
    quiet
        Whether to leave out the progress bar.

    Raises
    ------
    SweepError
        Another process runs this sweep, or the scheduler does not answer.
    """
    if workers is not None:
        check_int("workers", workers)
    if first is not None:
        check_int("first", first)
    check_int("gpus", gpus, minimum=0)
    spec, keys = sweep.specification, point_keys(sweep)
    with store.lock():
        store.sweep_up()
        waiting = [key for key in keys if (store.read(key) or {}).get("state") != "finished"]
        before = len(keys) - len(waiting)
        tasks = [
            Task(key, keys[key], sweep.notebook, store.folder, spec.limit, spec.retries, gpus)
            for key in waiting[:first]
        ]
        failures = []
        if tasks:
            with _cluster(scheduler, workers or gpus or None) as client:
                report(f"dashboard: {client.dashboard_link}")
                for record in _progress(_records(client, tasks, store), len(tasks), quiet):
                    if record["state"] == "failed":
                        failures.append(record)
                        report(f"failed: {keys[record['key']].label}: {record['error']}")
    return Outcome(len(keys), before, len(tasks) - len(failures), failures)


def _records(client: Any, tasks: list[Task], store: Store) -> Iterator[dict[str, Any]]:
    """Yield the record of each point as it ends; a point that keeps killing its worker has failed."""
    from distributed import KilledWorker, as_completed

    futures = client.map(execute_point, tasks, key=[f"point-{t.key}" for t in tasks], pure=False)
    by_key = {future.key: task for future, task in zip(futures, tasks, strict=True)}
    for future in as_completed(futures):
        task = by_key[future.key]
        if future.status == "finished":
            yield future.result()
            continue
        problem = future.exception()
        killed = isinstance(problem, KilledWorker)
        error = "its worker died again and again" if killed else f"{type(problem).__name__}: {problem}"
        record = {"key": task.key, "parameters": task.point.parameters, "repeat": task.point.repeat}
        record |= {"state": "failed", "error": " ".join(error.split()), "numbers": {}, "seconds": None}
        record |= {"device": None, "versions": {}, "attempts": None}
        store.write(record, None)
        yield record


@contextmanager
def _cluster(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Connect to a scheduler, or start a local cluster of single-threaded processes for the time being."""
    import dask
    from distributed import Client, LocalCluster

    settings = {
        "distributed.scheduler.worker-saturation": 1.0,  # a dying worker takes no waiting point with it
    }
    with dask.config.set(settings):
        _configure_logging()
        if scheduler is None:
            count = workers or len(os.sched_getaffinity(0))
            with (
                LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    host="127.0.0.1",
                    silence_logs=50,
                ) as cluster,
                Client(cluster) as client,
            ):
                yield client
            return
        try:
            client = Client(scheduler, timeout=_ANSWER)
        except (OSError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise SweepError(f"scheduler: no answer from {scheduler!r}: {reason}") from None
        with client:
            yield client


def _configure_logging() -> None:
    """Keep Dask's own messages about workers that come and go off the terminal: the records say what matters."""
    import logging

    for name in ("distributed", "bokeh", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _progress(records: Iterator[dict[str, Any]], total: int, quiet: bool) -> Iterator[dict[str, Any]]:
    from tqdm import tqdm

    yield from tqdm(records, total=total, unit="point", disable=quiet, file=sys.stderr, dynamic_ncols=True)


def default_folder(sweep: Sweep) -> Path:
    """Return the folder for a sweep's records when none is named: ``sweep-results/NAME`` where the command runs."""
    return Path.cwd() / "sweep-results" / sweep.name
