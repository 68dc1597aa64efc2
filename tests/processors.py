"""Other processors made out of this one: environments in which libraries take other instructions or more threads."""

from __future__ import annotations

PROCESSORS: dict[str, dict[str, str]] = {
    "": {},
    "compatible": {
        "MKL_CBWR": "COMPATIBLE",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "without vectors": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
    "two threads": {"OMP_NUM_THREADS": "2"},
}
