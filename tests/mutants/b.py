"""Wrong implementations for the claims of section B: implicit bias."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
