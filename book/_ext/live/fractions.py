"""Exact fractions for the page: what capsules use of the standard library's, which starts at once in Brython."""

from math import gcd


def parts(value):
    """Return numerator and denominator of an integer or a fraction."""
    if isinstance(value, int):
        return value, 1
    if isinstance(value, Fraction):
        return value.numerator, value.denominator
    raise TypeError(f"{type(value).__name__} is neither an integer nor a fraction")


class Fraction:
    """A fraction in lowest terms with a positive denominator."""

    def __init__(self, numerator=0, denominator=1):
        """Divide two integers or fractions; one may also give a float, or a string like "2/3"."""
        if isinstance(numerator, str):
            above, _, below = numerator.partition("/")
            numerator, denominator = int(above), int(below or 1)
        elif isinstance(numerator, float):
            numerator, denominator = numerator.as_integer_ratio()
        (a, b), (c, d) = parts(numerator), parts(denominator)
        a, b = a * d, b * c
        if b == 0:
            raise ZeroDivisionError(f"Fraction({a}, 0)")
        common = gcd(a, b) if b > 0 else -gcd(a, b)
        self.numerator, self.denominator = a // common, b // common

    def _with(self, other, exact, rounded):
        if isinstance(other, float):
            return rounded(float(self), other)
        if not isinstance(other, (int, Fraction)):
            return NotImplemented
        return exact(self.numerator, self.denominator, *parts(other))

    def __add__(self, other):
        return self._with(other, lambda a, b, c, d: Fraction(a * d + c * b, b * d), lambda x, y: x + y)

    def __sub__(self, other):
        return self._with(other, lambda a, b, c, d: Fraction(a * d - c * b, b * d), lambda x, y: x - y)

    def __rsub__(self, other):
        return self._with(other, lambda a, b, c, d: Fraction(c * b - a * d, b * d), lambda x, y: y - x)

    def __mul__(self, other):
        return self._with(other, lambda a, b, c, d: Fraction(a * c, b * d), lambda x, y: x * y)

    def __truediv__(self, other):
        return self._with(other, lambda a, b, c, d: Fraction(a * d, b * c), lambda x, y: x / y)

    def __rtruediv__(self, other):
        return self._with(other, lambda a, b, c, d: Fraction(b * c, a * d), lambda x, y: y / x)

    __radd__, __rmul__ = __add__, __mul__

    def __pow__(self, power):
        if not isinstance(power, int):
            return float(self) ** float(power)
        if power < 0:
            return Fraction(self.denominator**-power, self.numerator**-power)
        return Fraction(self.numerator**power, self.denominator**power)

    def __eq__(self, other):
        return self._with(other, lambda a, b, c, d: a == c and b == d, lambda x, y: x == y)

    def __lt__(self, other):
        return self._with(other, lambda a, b, c, d: a * d < c * b, lambda x, y: x < y)

    def __le__(self, other):
        return self._with(other, lambda a, b, c, d: a * d <= c * b, lambda x, y: x <= y)

    def __gt__(self, other):
        return self._with(other, lambda a, b, c, d: a * d > c * b, lambda x, y: x > y)

    def __ge__(self, other):
        return self._with(other, lambda a, b, c, d: a * d >= c * b, lambda x, y: x >= y)

    def __neg__(self):
        return Fraction(-self.numerator, self.denominator)

    def __abs__(self):
        return Fraction(abs(self.numerator), self.denominator)

    def __bool__(self):
        return self.numerator != 0

    def __float__(self):
        return self.numerator / self.denominator

    def __round__(self, digits=None):
        return round(float(self), digits)

    def __hash__(self):
        return hash(self.numerator) if self.denominator == 1 else hash((self.numerator, self.denominator))

    def __str__(self):
        return str(self.numerator) if self.denominator == 1 else f"{self.numerator}/{self.denominator}"

    def __repr__(self):
        return f"Fraction({self.numerator}, {self.denominator})"
