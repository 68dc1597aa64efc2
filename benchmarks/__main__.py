"""Run every benchmark of this folder, one after the other: ``python -m benchmarks``."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"== {path.stem}", flush=True)
        runpy.run_path(str(path), run_name="__main__")
