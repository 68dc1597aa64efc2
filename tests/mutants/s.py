"""Wrong implementations for the claims of section S: sample complexity."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
