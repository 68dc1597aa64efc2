"""Wrong implementations for the claims of section E: ensembles."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
