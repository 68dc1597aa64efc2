"""Run all points of a sweep on a Dask cluster, finished points excepted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lib.sweep.plain import SweepError, one_line
from lib.sweep.specification import Sweep
from lib.sweep.store import Store, code_digest, point_keys
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
        The number of GPUs of this machine to use, one process on each; with 0 the points run on the CPU, unless
        ``SYMMETRY_DEVICE`` names another device. The workers of a running scheduler have their own environment.
    first
        Run at most so many points.
    report
        Called with every line worth telling.
    quiet
        Whether to leave out the progress bar.

    Raises
    ------
    SweepError
        A number is out of range, another process runs this sweep, or the scheduler does not answer.
    """
    _check_numbers(scheduler, workers, gpus, first)
    spec, code = sweep.specification, code_digest(sweep.notebook)
    keys, gpu = point_keys(sweep, code), None if scheduler else gpus > 0
    with store.lock():
        store.sweep_up()
        waiting = [key for key in keys if (store.read(key) or {}).get("state") != "finished"]
        before = len(keys) - len(waiting)
        tasks = [
            Task(key, keys[key], sweep.notebook, store.folder, spec.limit, spec.retries, gpu, code)
            for key in waiting[:first]
        ]
        failures = []
        if tasks:
            with _cluster(scheduler, workers or gpus or None) as client:
                report(f"dashboard: {client.dashboard_link}")
                if not client.nthreads():
                    report("no worker has joined the scheduler yet; waiting for one")
                records = _records(client, tasks, store)
                for record in tqdm(records, total=len(tasks), unit="point", disable=quiet, dynamic_ncols=True):
                    if record["state"] == "failed":
                        failures.append(record)
                        report(f"failed: {keys[record['key']].label}: {record['error']}")
    return Outcome(len(keys), before, len(tasks) - len(failures), failures)


def _check_numbers(scheduler: str | None, workers: int | None, gpus: int, first: int | None) -> None:
    """Refuse numbers out of range, and local choices for a cluster that exists already."""
    for name, value, least in (("workers", workers, 1), ("gpus", gpus, 0), ("first", first, 1)):
        if value is not None and (not isinstance(value, int) or value < least):
            raise SweepError(f"{name}: must be an integer of at least {least}, got {value!r}")
    if scheduler and (workers or gpus):
        name = "workers" if workers else "gpus"
        raise SweepError(f"{name}: is for this machine; with a scheduler, its own workers decide")
    if gpus:
        import torch

        present = torch.cuda.device_count()
        if gpus > present or (workers or 1) > gpus:
            raise SweepError(
                f"gpus: {workers or gpus} processes need as many GPUs, got {min(gpus, present)} of {present}"
            )


def _records(client: Any, tasks: list[Task], store: Store) -> Iterator[dict[str, Any]]:
    """Yield the record of each point as it ends; a point that keeps killing its worker has failed.

    Raises
    ------
    SweepError
        The scheduler is gone, the folder cannot be written to, or the code is not what the sweep began with.
    """
    from distributed import KilledWorker, as_completed

    futures = client.map(execute_point, tasks, key=[f"point-{t.key}" for t in tasks], pure=False)
    by_key = {future.key: task for future, task in zip(futures, tasks, strict=True)}
    for future in as_completed(futures):
        task = by_key[future.key]
        if future.status == "finished":
            yield future.result()
            continue
        if future.status in ("cancelled", "lost"):
            raise SweepError("scheduler: lost; what is finished is kept, and the same command goes on from there")
        stored = store.read(task.key)
        if stored is not None and stored["state"] == "finished":  # its worker died just after
            yield stored
            continue
        problem = future.exception()
        if isinstance(problem, SweepError):  # not this point's fault: the disk is full, or the code has changed
            raise problem
        killed = isinstance(problem, KilledWorker)
        error = "its worker died again and again" if killed else f"{type(problem).__name__}: {one_line(problem)}"
        record = {"key": task.key, "parameters": task.point.parameters, "repeat": task.point.repeat}
        record |= {"state": "failed", "error": error, "numbers": {}, "seconds": None}
        record |= {"device": None, "versions": {}, "attempts": None}
        yield store.write(record, None)


@contextmanager
def _cluster(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Connect to a scheduler, or start a local cluster of single-threaded processes for the time being."""
    import dask
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    _configure_logging()
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=_ANSWER)
        except (OSError, ValueError, TypeError) as error:
            raise SweepError(f"scheduler: no answer from {scheduler!r}: {one_line(error)}") from None
        with client:
            if any(threads > 1 for threads in client.nthreads().values()):
                raise SweepError("scheduler: its workers must have one thread each (dask worker --nthreads 1)")
            yield client
        return
    with dask.config.set({"distributed.scheduler.worker-saturation": 1.0}):  # no point waits at a worker that may die
        try:
            with _interrupts_stay_here(), socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), _ANSWER).close()  # without loopback Dask waits 30 s
                cluster = LocalCluster(
                    n_workers=workers or CPU_COUNT,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    host="127.0.0.1",
                    silence_logs=50,
                )
        except (OSError, RuntimeError) as error:
            raise SweepError(f"workers: cannot start on this machine (127.0.0.1): {one_line(error)}") from None
        with cluster, Client(cluster) as client:
            yield client


@contextmanager
def _interrupts_stay_here() -> Iterator[None]:
    """Keep Ctrl-C for the present thread: the threads and processes that are started meanwhile do not get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _configure_logging() -> None:
    """Keep Dask's own messages about workers that come and go off the terminal: the records say what matters."""
    import logging

    for name in ["distributed", "bokeh", "tornado", *logging.root.manager.loggerDict]:
        if name.split(".")[0] in ("distributed", "bokeh", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def default_folder(sweep: Sweep) -> Path:
    """Return the folder for a sweep's records when none is named: ``sweep-results/NAME`` where the command runs."""
    return Path.cwd() / "sweep-results" / sweep.name
