"""Quadratic forms on the plane in exact arithmetic: definiteness, averaging over a swap, derivatives of polynomials.

The group S_2 swaps the two coordinates; its equivariant subspace E is the diagonal, spanned by (1, 1), and E^⊥ is
spanned by (1, −1). Numbers are :class:`fractions.Fraction`, so every sign below is a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from lib.checks import check_int

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Form:
    """The symmetric matrix [[p, q], [q, r]] with exact entries.

    Raises
    ------
    TypeError
        An entry is neither a fraction nor an integer.
    """

    p: Fraction
    q: Fraction
    r: Fraction

    def __post_init__(self) -> None:
        for name in ("p", "q", "r"):
            value = getattr(self, name)
            if not isinstance(value, (int, Fraction)):
                raise TypeError(f"{name} must be a Fraction or an int, got {value!r} of type {type(value).__name__}")

    @property
    def is_positive(self) -> bool:
        """Whether the matrix is positive definite: p > 0 and pr > q² (Sylvester's criterion)."""
        return self.p > 0 and self.p * self.r > self.q**2

    @property
    def on_equivariant(self) -> Fraction:
        """The mean curvature (p + 2q + r)/2 along the unit vector of E: the form compressed to E."""
        return HALF * (self.p + 2 * self.q + self.r)

    @property
    def on_complement(self) -> Fraction:
        """The curvature (p − 2q + r)/2 along the unit vector of E^⊥; averaging over the swap does not change it."""
        return HALF * (self.p - 2 * self.q + self.r)

    def averaged(self, swapped: Fraction = HALF) -> Form:
        """Return ``(1 − swapped)`` times the matrix plus ``swapped`` times its image under the swap.

        The default is the Haar average, the projection onto the invariant forms.
        """
        p, r = ((1 - swapped) * a + swapped * b for a, b in ((self.p, self.r), (self.r, self.p)))
        return Form(p, Fraction(self.q), r)


@dataclass(frozen=True)
class StrictMinimum:
    """Whether a stationary point of E with given Hessians is a strict minimum of R, of R^aug, and of R^eqv on E."""

    nominal: bool
    augmented: bool
    equivariant: bool


def classify(form: Form, swapped: Fraction = HALF) -> StrictMinimum:
    """Return the definiteness of ∇²R = ``form``, of its average over S_2, and of its compression to E."""
    return StrictMinimum(form.is_positive, form.averaged(swapped).is_positive, form.on_equivariant > 0)


def violated_implications(size: int, swapped: Fraction = HALF) -> int:
    """Return how many integer matrices break "R ⇒ R^aug" or "R^aug ⇒ R^eqv" for strict minima with definite Hessians.

    Parameters
    ----------
    size
        All (2·size + 1)³ symmetric matrices with entries between −size and size are tried.
    swapped
        Weight of the swap in the average; anything but 1/2 is not Haar.
    """
    entries = range(-check_int("size", size), size + 1)
    kinds = (classify(Form(p, q, r), swapped) for p, q, r in product(entries, repeat=3))
    return sum((k.nominal and not k.augmented) or (k.augmented and not k.equivariant) for k in kinds)


def exact_derivatives(risk: Callable[[tuple[Fraction, Fraction]], Any], at: tuple) -> tuple[list[Fraction], Form]:
    """Return gradient and Hessian of a polynomial of degree at most four in two variables, exactly.

    Five-point differences have no error for such polynomials, whatever their step: the error term holds the fifth
    (gradient) and the sixth derivative. The mixed derivative is half of D²_{(1,1)} − D²_{(1,0)} − D²_{(0,1)}.

    Parameters
    ----------
    risk
        The polynomial; it is evaluated at fractions.
    at
        The point, two fractions.
    """

    def line(u: int, v: int) -> list[Fraction]:
        return [risk((at[0] + k * u, at[1] + k * v)) for k in range(-2, 3)]

    def second(f: list[Fraction]) -> Fraction:
        return (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / 12

    along = line(1, 0), line(0, 1), line(1, 1)
    slope = [(f[0] - 8 * f[1] + 8 * f[3] - f[4]) / 12 for f in along[:2]]
    p, r, both = (second(f) for f in along)
    return slope, Form(p, (both - p - r) / 2, r)
