"""Run every benchmark of this folder, one after the other: ``python -m benchmarks``."""

import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    codes = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"== {path.stem}", flush=True)
        codes.append(subprocess.run([sys.executable, str(path)], check=False).returncode)
    sys.exit(max(codes))
