"""Wrong implementations for the claims of section G: structure-preserving GANs."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
