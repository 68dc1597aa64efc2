"""Kernels that are born with their packages: one process imports them, and every notebook's kernel is a fork of it.

A kernel of its own spends some four seconds of processor time on importing PyTorch and others, sixty times in a
run of the tests. Nothing of ``lib`` is imported before the fork.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import patch

# Without pandas, which asks while it is imported whether it prints in a notebook, and without what imports it.
_PACKAGES = ("torch", "torch.func", "matplotlib.figure", "matplotlib.axes", "pyarrow", "scipy.stats", "scipy.spatial")
_OF_ONE_TEST = ("PYTEST_CURRENT_TEST", "JPY_SESSION_NAME")
_NURSERIES: dict[tuple[tuple[str, str], ...], subprocess.Popen] = {}


class Fork:
    """What a kernel's manager expects of a ``Popen``, for a process that another one has started."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        """Take the number of a running process."""
        self.pid = pid

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens where the process has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """None while the process runs, then 0: its true status is its parent's."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        """Wait until the process has ended."""
        while self.poll() is None:
            time.sleep(0.05)
        return 0


def _nursery(environment: tuple[tuple[str, str], ...]) -> subprocess.Popen:
    if environment not in _NURSERIES:
        _NURSERIES[environment] = subprocess.Popen(
            [sys.executable, __file__],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    return _NURSERIES[environment]


@atexit.register
def close() -> None:
    """End all nurseries, and with them their kernels."""
    while _NURSERIES:
        with _NURSERIES.popitem()[1] as nursery:
            nursery.kill()


def _launch(command: list[str], *, env: dict[str, str], cwd: str | None = None, **_: object) -> Fork:
    nursery = _nursery(tuple(sorted((name, value) for name, value in env.items() if name not in _OF_ONE_TEST)))
    nursery.stdin.write(json.dumps([command[command.index("-f") :], cwd or os.getcwd()]) + "\n")
    nursery.stdin.flush()
    return Fork(int(nursery.stdout.readline()))


@contextmanager
def forked() -> Iterator[None]:
    """Within it, kernels that are started are forks; those of one environment have one nursery."""
    with patch("jupyter_client.provisioning.local_provisioner.launch_kernel", _launch):
        yield


def _serve() -> None:
    del sys.path[0]  # this folder
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # when this process ends, so do the kernels
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    from ipykernel import kernelapp

    for package in _PACKAGES:
        importlib.import_module(package)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no kernel stays as a zombie
    for line in sys.stdin:
        arguments, folder = json.loads(line)
        pid = os.fork()
        if pid:
            os.setpgid(pid, pid)  # before anybody signals the group
            print(pid, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDWR)
        for channel in range(3):
            os.dup2(nothing, channel)
        kernelapp.launch_new_instance(arguments)
        os._exit(0)


if __name__ == "__main__":
    _serve()
