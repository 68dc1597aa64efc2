"""Calls of the topics but gans: augmentation, ensembles, implicit bias, mean field."""

from __future__ import annotations

from functools import partial

import torch

from lib.augmentation import augmented_descent, networks, risks, sampling_laws, synthetic
from lib.checks import seeded
from lib.ensembles import metrics as ensemble_metrics
from lib.ensembles import training as ensembles
from lib.implicit_bias import gradient_flow, linear_networks, log_loss_descent, margins, optimality, steerable
from lib.mean_field import descent as mean_field_descent
from lib.mean_field import discovery, units
from lib.mean_field import particles as mean_field
from lib.symmetry.actions import natural, planar, regular, trivial
from lib.symmetry.derived import Hom
from lib.symmetry.groups import Cyclic, Dihedral, Symmetric
from lib.symmetry.haar import projection
from tests.calls import call, law, normal, numbers
from tests.chapters import load

C4, D3 = Cyclic(4), Dihedral(3)
MARGINS = load("margins_and_augmentation")
SEPARABLE = normal(6, 6) + 3 * torch.eye(6, dtype=torch.float64)[0]
LABELS = torch.ones(6, dtype=torch.float64)
SOLVED = "the solver works in double precision"

# --- linear networks


LINEAR = {
    "dense": linear_networks.fully_connected(6, 3, 2),
    "diagonal": linear_networks.diagonal(6, 3),
    "convolution": linear_networks.group_convolution(D3, 3),
    "steerable": MARGINS.steerable_network([regular(D3), regular(D3)]),
}


@call(*(normal(2, network.size) for network in LINEAR.values()), normal(2, 6), powers=4)
def linear_network(*tensors):
    *weights, v = tensors
    out = []
    for network, w in zip(LINEAR.values(), weights, strict=True):
        beta, product = network.vjp(w)
        out += [beta, product(v), network.predictor(w), network.jacobian(w), network.hessian(w, v)]
    return out


REDUCTION = MARGINS.Reduction(LINEAR["steerable"])
MAPS = projection(Hom(regular(D3), regular(D3))).basis().unflatten(-1, (6, 6))


@call(normal(2, LINEAR["steerable"].size), MAPS, normal(2, len(MAPS)))
def steerable_layers(w, maps, coefficients):
    layer = steerable.SteerableLayer(regular(D3), regular(D3), maps)
    return REDUCTION.parameters(w), REDUCTION.rest(w), layer.matrix(coefficients)


@call(SEPARABLE, LABELS, 0.5 * normal(LINEAR["diagonal"].size).abs() + 0.2, double=SOLVED, kept=(1, 2))
def gradient_flow_of_a_network(features, labels, start):
    how = gradient_flow.Integration(cap=100.0, efolds=5.0)
    return gradient_flow.train(LINEAR["diagonal"], features, labels, start, how)


@call(SEPARABLE, LABELS, double=SOLVED)
def largest_margins(features, labels):
    found = margins.max_margin(features, labels)
    invariant = margins.invariant_max_margin(features + 4, labels, regular(D3))
    shown = [
        margins.separability(features, labels),
        margins.separability(torch.stack([features[0], -features[0]]), labels[:2]),
    ]
    return found, found.direction, found.margin, found.support, invariant, shown


@call(normal(3, 4), normal(3, 4))
def angles(a, b):
    return margins.angle(a, b), margins.one_minus_cosine(a, b)


NORMS = [
    optimality.Norm(basis, p)
    for basis, p in (
        (optimality.coordinates(6), 1.0),
        (optimality.frequencies(6), 2 / 3),
        (optimality.irreducibles(D3), 1.0),
    )
]


@call(SEPARABLE, LABELS, LABELS / 6, SEPARABLE.mean(0), double=SOLVED, kept=(0, 1, 2), powers=2)
def optimality_conditions(features, labels, multipliers, beta):
    out = []
    for norm in NORMS:
        out.append(optimality.form_p(norm, beta, features, labels, multipliers))
        out += [norm(beta), norm.target(beta), norm.image(features, beta), norm.slope(beta, 0.0)]
        out += [norm.dual(beta)] if norm.p >= 1 else []
        out.append(optimality.form_a(norm, beta, features, labels, 10.0))
    out.append(optimality.duality_gap(NORMS[0], beta, features, labels, multipliers))
    out.append(optimality.separation(NORMS[0], NORMS[2], beta))
    return out


@call(normal(2, 4, 3), 5 * normal(2, 3).abs() + 1, torch.tensor([-torch.inf, 2.0, 3.0], dtype=torch.float64), kept=(2,))
def descent_on_the_log_loss(points, start, marks):
    w, positive = start.clone().requires_grad_(True), points.abs()
    loss = lambda: log_loss_descent.log_exponential_loss((positive @ w[..., None])[..., 0])  # noqa: E731
    return log_loss_descent.descend([w], loss, marks, lambda: w / w.norm(dim=-1, keepdim=True))


# --- networks of layers that can be projected, and their descent

GRAPHS = networks.graph_network(4, 2, 2, 2)
IMAGES = networks.classifier_network("translations", 4, 2, 3)
MASKS = networks.mask_network(4, (2,), 2)
TASKS = (
    (GRAPHS, numbers(2, 4, 1, 16).double(), numbers(2, 4)),
    (IMAGES, law(4, 1, 16), numbers(3, 4)),
    (MASKS, law(4, 1, 16), numbers(2, 4, 2, 16).double()),
)
STARTS = [network.start(2, dtype=torch.float64) for network, _, _ in TASKS]


@call(*(t for _, x, y in TASKS for t in (x, y)), *(w for start in STARTS for w in start), kept=(1, 3, 5), powers=5)
def projected_networks(*tensors):
    out, weights = [], list(tensors[6:])
    for k, (network, _, _) in enumerate(TASKS):
        x, y = tensors[2 * k : 2 * k + 2]
        start = [weights.pop(0) for _ in network.layers]
        dense = network.embed(start)
        out += [network(start, x[None]), network(dense, x[None]), network.losses(dense, x[None], y[None])]
        moved = [w + 0.1 for w in dense]
        out += [network.project(moved), network.off(moved), network.coordinates(dense), network.off(dense)]
        out += [layer.reduced_norm(w) for layer, w in zip(network.layers, start, strict=True)]
    return out


STRATEGIES = [
    augmented_descent.NOMINAL,
    augmented_descent.EQUIVARIANT,
    augmented_descent.augmented(sampling_laws.haar(C4)),
    augmented_descent.augmented(sampling_laws.haar(C4), 8),
    augmented_descent.augmented(sampling_laws.haar(C4), 2),
]


@call(*TASKS[2][1:], *STARTS[2], double="distances are kept in double precision", cpu="kept on the CPU")
def augmented_training(x, y, *start):
    task = augmented_descent.Task(MASKS, x, y, 2)
    histories = [augmented_descent.train(task, start, how, epochs=2, rate=0.1) for how in STRATEGIES]
    return [[h.moved, h.off, h.distance, h.drift] for h in histories]


@call(*TASKS[2][1:], *STARTS[2])
def gradient_of_augmentation(x, y, *start):
    task = augmented_descent.Task(MASKS, x, y, 2)
    pieces = augmented_descent.views(task, STRATEGIES[4], augmented_descent.run_generators([0, 1], 0), 4)
    return augmented_descent.gradient(task, start, pieces), task.to(x.dtype, x.device).inputs


LAWS = sampling_laws.haar(C4), sampling_laws.published("rotations", C4, 4)


@call(*TASKS[2][1:], *STARTS[2], double="forecasts are given in double precision")
def forecast_of_drift(x, y, *start):
    task = augmented_descent.Task(MASKS, x, y, 2)
    return [augmented_descent.forecast(task, start, law) for law in LAWS]


@call(*TASKS[2][1:], C4.elements())
def moved_data(x, y, g):
    return augmented_descent.transformed(augmented_descent.Task(MASKS, x, y, 2), g)


LAW = sampling_laws.haar(C4)


@call(C4.elements(), law(4), normal(3, 2), draws=True)
def law_of_products(elements, weights, x):
    product = sampling_laws.Law("twice", C4, ((elements, weights), (elements, weights)))
    out = [product.listed(), product.sample(5, seeded(0)), product.average(planar(C4), x)]
    return out, LAW.average(planar(C4), x)


@call(normal(1))
def starts_on_a_device(like):
    out = [network.start(2, seeded(0), device=like.device).to(like) for network in LINEAR.values()]
    out += [w for network, _, _ in TASKS for w in network.start(2, dtype=like.dtype, device=like.device)]
    laws = [((0.0, 0.0, 0.0), "small"), ((-1.0, 0.0, 1.0), "unit")]
    return out, [ensembles.draw_members(NETWORK, 2, 0, *how, dtype=like.dtype, device=like.device) for how in laws]


# --- explicit risks

SMALL = risks.SmallNetwork([planar(C4), regular(C4), trivial(C4)])


@call(normal(3, 2), normal(3, 1), normal(2, SMALL.layers.dim), law(4), powers=8, joint=True)
def explicit_risks(x, y, parameters, weights):
    risk = risks.Risks(SMALL, x, y)
    out = [risk.nominal(parameters), risk.equivariant(parameters), risk.outside(parameters)]
    out += [risk.augmented(parameters), risk.augmented(parameters, weights)]
    return out, risks.gradient(risk.augmented, parameters)


@call(
    *(normal(3, 2), normal(3, 1), normal(2, SMALL.layers.dim)),
    plain="forward derivatives crash on such tensors",
    powers=8,
    joint=True,
)
def curvature(x, y, parameters):
    return risks.hessian(risks.Risks(SMALL, x, y).augmented, parameters)


# --- ensembles

NETWORK = ensembles.Network(4, 2, 3)
MEMBERS = ensembles.draw_members(NETWORK, 4, dtype=torch.float64)


# A filter times a picture is a square, and the sum of two that overflow with opposite signs is no number.
@call(*MEMBERS, normal(5, 4, 4), powers=2)
def ensemble(*tensors):
    members, images = tensors[:-1], tensors[-1]
    table = torch.stack([images.rot90(k, (-2, -1)) for k in range(4)])
    out = NETWORK.outputs(members, images[None])
    return out, table, ensemble_metrics.orbit_logits(NETWORK, members, table, 3)


@call(normal(4, 6, 4, 4), numbers(3, 6))
def ensemble_descent(table, labels):
    members = ensembles.train_ensemble(NETWORK, table, labels, 3, block=2, epochs=1, batch=3)
    later = ensembles.train(NETWORK, members, table, labels, epochs=1, batch=3, seed=1)
    return members, later, ensembles.loss_gradient(NETWORK, members, table[:1, :], labels)


@call(normal(12, 4, 5, 3))
def ensemble_scores(logits):
    metrics = (ensemble_metrics.squared_residual, ensemble_metrics.agreement, ensemble_metrics.divergence)
    return [metric(logits) for metric in metrics]


# --- mean-field networks

S2 = Symmetric(2)
UNITS = {
    "layer": units.Layer(natural(S2), natural(S2), "tanh"),
    "plain": units.Unit(lambda x, z: (x * z).sum(-1, keepdim=True).tanh(), natural(S2), trivial(S2), natural(S2)),
}


@call(normal(2, 3, 4), normal(2, 3, 2), normal(5, 2), normal(2, 5, 2), normal(2, 5, 1), law(5), powers=4, kept=(5,))
def particles(z, w, x, y, v, weights):
    out = []
    for unit, points, targets in ((UNITS["layer"], z, y), (UNITS["plain"], w, v)):
        moved = unit.to(points)
        out += [moved.network(x, points), moved(x[:1], points[0, :1])]
        for scheme in mean_field.SCHEMES:
            out.append(mean_field.intrinsic_derivative(unit, scheme, points, x, targets, weights))
            out.append(mean_field.risk(unit, scheme, points, x, targets))
        out += [mean_field.symmetrise(points, unit.parameters), mean_field.project(points, unit.parameters)]
    return out


DESCENT = mean_field_descent.Descent(rate=1.0, time=1.0, temperature=1e-3)


@call(normal(2, 2, 4, 4), normal(3, 4), normal(5, 2), draws=True, powers=4)
def particle_descent(start, teacher, x):
    unit, out = UNITS["layer"], []
    drawn = mean_field_descent.TeacherData(unit, [teacher, teacher], batch=3)
    for scheme, data, noise in (("DA-sampled", drawn, "plain"), ("EA", drawn, "plain"), ("DA", drawn, "images")):
        how = {"noise": noise, "frames": 1, "projected": [False, True]}
        trained = mean_field_descent.train(unit, scheme, start, data, DESCENT, [0, 1], **how)
        out += [trained.particles, trained.end]
    return out, drawn.targets(x), drawn.draw(seeded(0), 2, start)


# --- growing subspaces


@call(normal(2, 3, 4), normal(5, 2), normal(2, 5, 2), law(5), powers=4)
def units(z, x, y, weights):
    return discovery.network(z, x, discovery.ERF), discovery.pull(z, x, y, weights=weights)


@call(torch.zeros(2, 0, 4, dtype=torch.float64), normal(2, 4, 4), draws=True)
def discovered(basis, teacher):
    move = partial(load("architecture_discovery").population_pull, teacher=teacher, scale=1.0)
    growth = discovery.Growth(particles=4, steps=3, threshold=1e-3)
    frame, escapes = discovery.grow(move, basis, growth, seeded(0))
    P = torch.diag_embed(torch.ones_like(teacher[:, 0]))
    lines = frame[..., None] * frame[..., None, :]  # (runs, D, D, D): the solver chooses the signs
    return lines, escapes, discovery.ended(escapes, 10.0), discovery.train_inside(move, P, growth, seeded(0))


@call(numbers(2, 2, 5, 5).bool())
def graphs(adjacency):
    return synthetic.connected(adjacency | adjacency.mT)


@call(torch.tensor([[0.5, 0.0], [-0.5, 0.5], [-0.5, -0.5]], dtype=torch.float64))
def polygons(corners):
    return synthetic.polygon_coverage(corners, 4)
