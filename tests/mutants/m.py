"""Wrong implementations for the claims of section M: mean-field dynamics."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
