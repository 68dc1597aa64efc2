"""Wrong implementations for the claims of section N: the frontier."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS: list[Mutant] = []
