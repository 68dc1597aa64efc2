"""Other processors made out of this one: environments in which libraries take other instructions or more threads.

The tests themselves compare every notebook in another order of sums than its outputs are stored in, MKL's for AVX2:
products of matrices take half of the time there, or less, where there is no AVX-512, and a stored digit that hangs on
the order is noticed. ``PROCESSOR="without vectors" pytest --nbval book`` compares every notebook as on that processor;
``make processors`` does it for all.
"""

from __future__ import annotations

from lib.page.notebooks import REPRODUCIBLE

_FREE = dict.fromkeys(REPRODUCIBLE, "")  # empty: what the libraries choose by themselves

PROCESSORS: dict[str, dict[str, str]] = {
    "": {"MKL_CBWR": "AVX2"},
    "as stored": {},
    "as it comes": _FREE,
    "without vectors": _FREE
    | {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem"},
    "two threads": _FREE | {"OMP_NUM_THREADS": "2"},
}
