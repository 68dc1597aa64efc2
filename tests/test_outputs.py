"""The comparison of printed numbers: what rounding decides passes, what a result decides does not."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_output

from tests.outputs import same_print, with_stored_digits

TABLE = "   size  residual\n0     1  {}\n1     2  {}"


@pytest.mark.parametrize(
    ("stored", "fresh"),
    [
        ("0.239367  0.09556", "0.239368  0.09556"),
        ("1.031953e-11", "1.766119e-11"),
        ("1.568487e-10", "-1.568354e-10"),
        ("rank 14.805442", "rank   14.805269"),
        ("below 0.49 (of 1.00)", "below 0.50 (of 1.00)"),
        (TABLE.format("1.0e-12", "3.5e-13"), TABLE.format("9.9e-13", "3.51e-13")),
        ("a\n-----\n2.5", "a\n------\n2.5"),
        ("group C4, A_5 and SO(3): 3", "group C4, A_5 and SO(3): 3"),
    ],
)
def test_rounding_is_passed_over(stored: str, fresh: str) -> None:
    assert same_print(stored, fresh)
    assert same_print(fresh, stored)


@pytest.mark.parametrize(
    ("stored", "fresh"),
    [
        ("0.2393", "0.2503"),
        ("0.4900", "0.5010"),
        ("1.0e-8", "2.2e-8"),
        ("12 of 20", "13 of 20"),
        ("2", "2.5"),
        ("1.5", "-1.5"),
        ("C4: 1.5", "C5: 1.5"),
        ("1.5 2.5", "1.5"),
        ("holds, 1.5", "fails, 1.5"),
        ("1e3", "1e4"),
        (TABLE.format(0.5, 0.25), TABLE.format(0.25, 0.5)),
        ("nan", "0.5"),
    ],
)
def test_results_are_not(stored: str, fresh: str) -> None:
    assert not same_print(stored, fresh)
    assert not same_print(fresh, stored)


def test_of_single_trained_networks_the_words_are_compared() -> None:
    assert same_print("0.61 of 4", "1.75 of 4", words_only=True)
    assert not same_print("0.61", "0.61 diverged", words_only=True)
    assert not same_print("0.61 0.5", "0.61", words_only=True)


def test_outputs() -> None:
    stored = [new_output("stream", text="1.00001\n"), new_output("display_data", {"text/plain": "x 2.00001"})]
    fresh = [new_output("stream", text="1.00002\n"), new_output("display_data", {"text/plain": "x 2.00002"})]
    assert with_stored_digits(stored, fresh) == stored
    assert fresh[0].text == "1.00002\n", "the outputs given are left as they are"
    other = [new_output("stream", text="1.2\n"), new_output("display_data", {"text/plain": "y 2.00001"})]
    assert with_stored_digits(stored, other) == other, "each output by itself: neither shows what is stored"
    assert with_stored_digits(stored, fresh[:1]) == fresh[:1]
