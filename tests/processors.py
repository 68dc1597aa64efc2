"""Other processors made out of this one: environments in which libraries take other instructions or more threads.

``PROCESSOR="without vectors" pytest --nbval book`` compares every notebook there; ``make processors`` does it for all.
Sums "in another order" are MKL's for AVX2: products of matrices take half of the time of the order that outputs are
stored in, or less, where there is no AVX-512.
"""

from __future__ import annotations

from lib.page.notebooks import REPRODUCIBLE

_FREE = dict.fromkeys(REPRODUCIBLE, "")  # empty: what the libraries choose by themselves

PROCESSORS: dict[str, dict[str, str]] = {
    "": {},
    "in another order": {"MKL_CBWR": "AVX2"},
    "as it comes": _FREE,
    "without vectors": _FREE
    | {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem"},
    "two threads": _FREE | {"OMP_NUM_THREADS": "2"},
}
