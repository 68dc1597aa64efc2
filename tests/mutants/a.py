"""Wrong implementations for the claims of section A: augmentation versus equivariance."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
