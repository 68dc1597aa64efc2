"""Wrong implementations for the claims of section H: groups, Haar measure, Haar projections."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
