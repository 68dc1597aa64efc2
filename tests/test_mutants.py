"""No panel is green when the algorithm behind it is wrong: every claim has a mutant that its checks notice."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from lib.page.claims import load_claims
from lib.page.evidence import Evidence
from tests.mutants import Mutant, measure, mutants, names_of

Key = tuple[tuple[str, Any], ...]
ALL = [pytest.param(m, id=str(m), marks=[pytest.mark.slow] if m.slow else []) for m in mutants()]


@cache
def _as_it_is(claim: str, parameters: Key, of_run: str, run_parameters: Key) -> Evidence:
    values = [{name: list(v) if isinstance(v, tuple) else v for name, v in key} for key in (parameters, run_parameters)]
    return measure(Mutant(claim, "nothing", (), parameters=values[0], of_run=of_run, run_parameters=values[1]))


def _key(parameters: Mapping[str, Any]) -> Key:
    return tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in parameters.items())


def test_every_claim_has_a_mutant() -> None:
    missing = set(load_claims()) - {m.claim for m in mutants()}
    assert not missing, f"claims without a mutant: {sorted(missing)}"


@pytest.mark.parametrize("mutant", list(mutants()), ids=str)
def test_a_change_stands_on_its_page(mutant: Mutant) -> None:
    """What is replaced is there once, and what replaces it uses names that the panel's cells define."""
    used, defined = names_of(mutant)
    assert not used - defined - set(dir(builtins)) - {"display", "__name__"}


@pytest.mark.parametrize("mutant", ALL)
def test_is_noticed(mutant: Mutant) -> None:
    """With the change every named check misses its bound; without it, at other than the default parameters, none."""
    evidence = measure(mutant)
    assert mutant.checks, "which check notices it?"
    green = [name for name in mutant.checks if evidence.outcomes[name].measured_holds]
    assert not green, f"{green} pass with: {mutant.what}\n{evidence.report()}"
    if mutant.parameters or mutant.of_run:
        right = _as_it_is(mutant.claim, _key(mutant.parameters), mutant.of_run, _key(mutant.run_parameters))
        assert right.holds, f"not even the right code passes at these parameters\n{right.report()}"
