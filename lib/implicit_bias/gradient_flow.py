"""Gradient flow of a classification loss for linear networks, followed until the direction of the predictor settles.

For a network of degree L write w = rθ with ‖θ‖ = 1 and z_i = y_i x_i, and let T = r^L be the inverse temperature. The
gradient of the loss Σ ℓ(y_i⟨x_i, β(w)⟩) points along g(θ) = Jβ(θ)ᵀ Σ p_i z_i, where for the exponential loss
p = softmax(−T⟨z_i, β(θ)⟩). The speed of the flow can be chosen freely; with ds = ‖dw‖/‖w‖ for time it reads

    dθ/ds = u − θ⟨θ, u⟩,    d log r/ds = ⟨θ, u⟩,    u = g/‖g‖.

*Flow*: this system is integrated until log(1/loss), that is T times the smallest margin of θ, reaches a cap near 1e5,
far beyond what descent in steps sees. *Continuation*: then T is frozen and the same field, now with s = log r, hence
dθ/ds = g/⟨θ, g⟩ − θ, followed over further e-folds of the norm until θ is stationary. Freezing T keeps the multipliers
p smooth; it moves the end by O(1/T). A rest point from which the field leads away is a saddle: almost no start leads to
it, but an integrator that loses small components comes to rest there. It is left.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from lib.checks import check_tensor
from lib.implicit_bias.linear_networks import LinearNetwork
from lib.implicit_bias.margins import NotSeparable, _at, separability

_RESTARTS = 100  # of the integrator
_EVALUATIONS = 100_000  # of the field; typical runs need 500 to 5000
_GROWTH = 1e-4  # per e-fold, from which a rest point counts as a saddle; at a minimum rounding gives up to 3e-6
_KICK = 1e-5  # how far a saddle is left before the field is followed again
_LENGTH = 1e4  # longest path before the loss must have reached the cap; typical paths are shorter than 20


@dataclass(frozen=True)
class Integration:
    """How the flow is followed."""

    loss: str = "exponential"  #: ℓ(m) = exp(−m), or ``"logistic"``, ℓ(m) = log(1 + exp(−m))
    cap: float = 1e5  #: value of log(1/loss) at which the continuation takes over
    efolds: float = 1000.0  #: most e-folds of the norm in the continuation
    tolerance: float = 1e-6  #: it stops when the angle between θ and the gradient is below this, unless θ is a saddle
    accuracy: float = 1e-6  #: relative error per step of the integrator; the absolute one is a thousandth of it


class Trained(NamedTuple):
    """The end of a gradient flow, and the way there; see :func:`train`."""

    direction: Tensor  #: β/‖β‖, shape ``(d,)``
    parameters: Tensor  #: θ, of norm one
    multipliers: Tensor  #: the weights p_i of the points in the gradient, of sum one: the flow's own multipliers
    margins: Tensor  #: y_i⟨x_i, β⟩/‖β‖
    stationarity: float  #: sine of the angle between θ and the gradient; zero at a stationary direction
    slackness: float  #: Σ p_i (m_i/min m − 1) with the margins m, zero when only points of smallest margin have weight
    temperature: float  #: T at the end of the flow, where it is frozen
    efolds: float  #: length of the continuation in e-folds of the norm
    log_norm: Tensor  #: log ‖w‖ along flow and continuation, shape ``(steps,)``
    path: Tensor  #: β/‖β‖ at these times, shape ``(steps, d)``
    handover: int  #: the step at which the continuation takes over
    converged: bool  #: whether the stationarity met the tolerance, and not at a saddle


def train(
    network: LinearNetwork, features: Tensor, labels: Tensor, start: Tensor, how: Integration | None = None
) -> Trained:
    """Follow the gradient flow of a linear network on separable data to the limit of its direction.

    Gradient flow on an exponentially tailed loss converges in direction for homogeneous networks, to a stationary point
    of the margin problem in parameter space (Lyu, Li 2020; Ji, Telgarsky 2020).

    Points x_i have shape ``(n, inputs)``, labels y_i, each 1 or −1, ``(n,)``, parameters at the start ``(size,)``; the
    integrator works on the CPU, in double precision.

    ``NotSeparable`` carries the certificate that no β separates the points. An ``ArithmeticError`` says that the start
    lies on a saddle or leads to one, or that the integrator stalls, as it may for a cap of 1e6 and more.
    """
    how = how or Integration()
    found = separability(check_tensor("features", features, (None, network.inputs), inexact=True), labels)
    if not found.separable:
        raise NotSeparable(found)
    begin = check_tensor("start", start, (network.size,), inexact=True).detach().double().cpu()
    field = _Field(network, (features * labels[:, None]).detach().double().cpu(), how)
    thetas, logs = field.flow(begin / begin.norm(), float(begin.norm().log()))
    handover = len(logs) - 1
    temperature = math.exp(network.depth * float(logs[-1]))
    theta, efolds = thetas[-1] / thetas[-1].norm(), 0.0
    while True:
        rests = field.tilt(theta, temperature) <= how.tolerance
        away = field.way_out(theta, temperature) if rests else None
        converged = rests and away is None
        if converged or efolds >= how.efolds:
            break
        if away is not None:
            theta = (theta + _KICK * away) / (theta + _KICK * away).norm()
        more, times = field.proceed(theta, temperature, min(max(20.0, efolds), how.efolds - efolds))
        thetas, logs = torch.cat([thetas, more[1:]]), torch.cat([logs, logs[-1] + times[1:]])
        theta, efolds = more[-1] / more[-1].norm(), efolds + float(times[-1])
    beta, path = network.predictor(theta), network.predictor(thetas)
    margins = field.points @ beta
    p, _ = field.weigh(margins, temperature)
    end = Trained(
        direction=beta / beta.norm(),
        parameters=theta,
        multipliers=p,
        margins=margins / beta.norm(),
        stationarity=field.tilt(theta, temperature),
        slackness=float(p @ (margins / margins.min() - 1)),
        temperature=temperature,
        efolds=efolds,
        log_norm=logs,
        path=path / path.norm(dim=-1, keepdim=True),
        handover=handover,
        converged=converged,
    )
    return _at(end, features)


class _Field:
    """The gradient field of a network on points z_i = y_i x_i, with its derivatives."""

    def __init__(self, network: LinearNetwork, points: Tensor, how: Integration) -> None:
        self.network, self.points, self.how = network, points, how
        self.evaluations = 0

    def weigh(self, margins: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Return the weights p = softmax(log(−ℓ′)) and −d log(−ℓ′)/dm at the margins of a unit vector θ."""
        m = temperature * margins
        if self.how.loss == "exponential":
            return torch.softmax(-m, 0), torch.ones_like(m)
        return torch.softmax(torch.nn.functional.logsigmoid(-m), 0), torch.sigmoid(m)

    def gradient(self, theta: Tensor, temperature: float) -> Tensor:
        """Return g(θ) = Jᵀ Σ p_i z_i."""
        self.evaluations += 1
        if self.evaluations > _EVALUATIONS:
            raise ArithmeticError(f"the integrator stalled at T = {temperature:.1e}; choose a smaller cap")
        beta, product = self.network.vjp(theta)
        return product(self.weigh(self.points @ beta, temperature)[0] @ self.points)

    def derivative(self, theta: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return g, ∂g/∂θ and ∂g/∂log r."""
        beta, product = self.network.vjp(theta)
        margins = self.points @ beta
        p, slope = self.weigh(margins, temperature)
        v = p @ self.points
        rows = self.points @ self.network.jacobian(theta)
        spread = (torch.diag(p) - torch.outer(p, p)) * slope  # −dp/dm
        by_theta = self.network.hessian(theta, v) - temperature * rows.mT @ (spread @ rows)
        by_log = -self.network.depth * temperature * (rows.mT @ (spread @ margins))
        return product(v), by_theta, by_log

    def tilt(self, theta: Tensor, temperature: float) -> float:
        """Return the sine of the angle between the unit vector θ and g(θ)."""
        g = self.gradient(theta, temperature)
        return float((g - theta * (theta @ g)).norm() / g.norm())

    def flow(self, theta: Tensor, log_norm: float) -> tuple[Tensor, Tensor]:
        """Integrate (θ, log r) until log(1/loss) reaches the cap; return both at every step."""
        depth, cap = self.network.depth, math.log(self.how.cap)

        def field(_: float, y: np.ndarray) -> np.ndarray:
            state = torch.from_numpy(y)
            theta, g = state[:-1], self.gradient(state[:-1], _power(depth * float(state[-1])))
            u = g / g.norm()
            c = theta @ u
            return torch.cat([u - theta * c, c[None]]).numpy()

        def jacobian(_: float, y: np.ndarray) -> np.ndarray:
            state = torch.from_numpy(y)
            theta = state[:-1]
            g, by_theta, by_log = self.derivative(theta, _power(depth * float(state[-1])))
            u, dg = g / g.norm(), torch.cat([by_theta, by_log[:, None]], 1)
            du = (dg - torch.outer(u, u @ dg)) / g.norm()
            dc = theta @ du
            dc[:-1] += u
            top = du - torch.outer(theta, dc)
            top.diagonal().sub_(theta @ u)
            return torch.cat([top, dc[None]]).numpy()

        def remaining(_: float, y: np.ndarray) -> float:
            margins = self.points @ self.network.predictor(torch.from_numpy(y[:-1]))
            return cap - depth * y[-1] - math.log(max(float(margins.min()), 1e-300))

        remaining.terminal = True
        start = torch.cat([theta, theta.new_tensor([log_norm])])
        if not self.gradient(theta, _power(depth * log_norm)).norm() > 0:
            raise ArithmeticError("the gradient vanishes at the start, which is a saddle; start from other parameters")
        y, _, reached = self._solve(field, jacobian, start, _LENGTH, remaining)
        if not reached:
            raise ArithmeticError(f"the loss did not reach the cap on a path of length {_LENGTH:g}: a saddle is near")
        return y[:, :-1], y[:, -1]

    def proceed(self, theta: Tensor, temperature: float, efolds: float) -> tuple[Tensor, Tensor]:
        """Integrate θ at fixed T over the given e-folds of the norm; return it at every step, and the steps."""

        def field(_: float, y: np.ndarray) -> np.ndarray:
            return self._rest(torch.from_numpy(y), temperature).numpy()

        def jacobian(_: float, y: np.ndarray) -> np.ndarray:
            return self._rest_derivative(torch.from_numpy(y), temperature).numpy()

        y, times, _ = self._solve(field, jacobian, theta, efolds)
        return y, times

    def way_out(self, theta: Tensor, temperature: float) -> Tensor | None:
        """Return the unit vector along which the field leads away from a rest point θ, None if it does not."""
        rates, vectors = torch.linalg.eig(self._rest_derivative(theta, temperature))
        growing = vectors[:, rates.real > _GROWTH]
        if not growing.shape[1]:
            return None
        plane = torch.linalg.svd(torch.cat([growing.real, growing.imag], 1), full_matrices=False)
        basis = plane.U[:, plane.S > 1e-8]
        already = basis.mT @ self._rest(theta, temperature)  # what the field does there
        return basis @ (already / already.norm() if already.norm() > 0 else torch.ones_like(already))

    def _rest(self, theta: Tensor, temperature: float) -> Tensor:
        """Return the field g/⟨θ, g⟩ − θ of the continuation."""
        g = self.gradient(theta, temperature)
        return g / (theta @ g) - theta

    def _rest_derivative(self, theta: Tensor, temperature: float) -> Tensor:
        g, dg, _by_log = self.derivative(theta, temperature)
        a = theta @ g
        result = (dg - torch.outer(g / a, theta @ dg + g)) / a
        result.diagonal().sub_(1)
        return result

    def _solve(
        self, field: Callable, jacobian: Callable, start: Tensor, length: float, event: Callable | None = None
    ) -> tuple[Tensor, Tensor, bool]:
        """Integrate by LSODA; return the states, shape ``(steps, size)``, the times, and whether the event happened.

        A point that becomes a support vector turns the path within a time of order 1/T, and the integrator then gives
        up on its long step; it is started again from there. Where it cannot even begin, an implicit method goes on:
        LSODA begins with an explicit one, and with a first step of its own choice may never leave it.
        """
        accuracy, states, times = self.how.accuracy, start.numpy()[:, None], np.zeros(1)
        method = "LSODA"
        for _ in range(_RESTARTS):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "lsoda", UserWarning)
                done = solve_ivp(
                    field, (times[-1], length), states[:, -1], method,
                    jac=jacobian, rtol=accuracy, atol=1e-3 * accuracy, events=event,
                )  # fmt: skip
            method = "LSODA" if len(done.t) > 1 else "BDF"
            states, times = np.hstack([states, done.y[:, 1:]]), np.hstack([times, done.t[1:]])
            if done.status >= 0:
                break
        else:
            raise ArithmeticError(f"the integrator failed: {done.message}")
        return torch.from_numpy(np.ascontiguousarray(states.T)), torch.from_numpy(times), done.status == 1


def _power(exponent: float) -> float:
    """Return exp(exponent), the L-th power of the norm."""
    if not exponent < 700:
        raise ArithmeticError(f"the norm of the parameters leaves the range of double precision: exp({exponent:.3g})")
    return math.exp(exponent)
