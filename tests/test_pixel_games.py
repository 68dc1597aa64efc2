"""Players on small images: the group on pixels, symmetry of the players, and games that are batches of runs."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lib.gans.layers import Players, tied
from lib.gans.pixel_games import GENERATORS, Discriminator, Game, Generator, play
from lib.images.laws import TrainingSets, pad_sets
from lib.images.sets import rotate_images
from lib.images.turns import Turns
from lib.symmetry.actions import pixels, planar, regular, trivial
from lib.symmetry.derived import Hom, multiple
from lib.symmetry.groups import Cyclic, Dihedral
from lib.symmetry.haar import projection

EXACT = [Turns(Cyclic(4), 4), Turns(Dihedral(4), 4), Turns(Dihedral(4), 5, 2), Turns(Cyclic(4), 6, 3)]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def defect(turns: Turns, x: Tensor) -> float:
    """Largest ‖R_g R_h x − R_gh x‖ over ‖x‖: 0 for a group action."""
    twice = turns.all(turns.all(x)).transpose(-3, -2)  # R_g R_h x at [g, h]
    once = turns.all(x)[..., turns.group.cayley_table(), :]
    return float(((twice - once).square().sum((0, 3)).max() / x.square().sum()).sqrt())


def small_sets(dim: int = 16, runs: int = 2, classes: int = 3) -> TrainingSets:
    rng = torch.Generator().manual_seed(5)
    sizes = [4 + 3 * r for r in range(runs)]
    return pad_sets([(noise(n, dim, seed=n), torch.randint(classes, (n,), generator=rng)) for n in sizes], classes)


def make_generator(kind: str, turns: Turns, runs: int = 2, classes: int = 3) -> Generator:
    ties, _ = Game(f"{kind}/plain", latent=5, width=12).layers(turns, classes)
    return Generator(kind, turns, Players(ties, runs, torch.Generator().manual_seed(1), torch.float64), classes)


def make_judge(turns: Turns, width: int, rng: torch.Generator, runs: int = 2) -> Players:
    return Players(Game(width=width).layers(turns, 3)[1], runs, rng, torch.float64)


# --- the group on pixels ---


@pytest.mark.parametrize("turns", EXACT, ids=str)
def test_turns_are_the_action_on_pixels(turns: Turns) -> None:
    x = noise(3, turns.dim)
    action = pixels(turns.group, turns.size)
    channels = x.unflatten(-1, (turns.channels, turns.size**2))
    expected = action.apply(turns.group.elements()[:, None, None], channels).flatten(-2).transpose(0, 1)
    assert torch.equal(turns.all(x), expected)
    assert defect(turns, x) == 0


def test_quarter_turns_are_rot90() -> None:
    x = noise(2, 64)
    expected = torch.stack([x.unflatten(-1, (8, 8)).rot90(k, (-2, -1)).flatten(-2) for k in range(4)], 1)
    assert torch.equal(Turns(Cyclic(4)).all(x), expected)


def test_eighths_agree_with_another_interpolation_and_are_not_quite_a_group() -> None:
    turns, x = Turns(Cyclic(8)), noise(2, 64)
    moved = turns.all(x)
    assert torch.equal(moved[:, ::2], Turns(Cyclic(4)).all(x))
    for k in range(8):
        other = rotate_images(x.view(2, 1, 8, 8), torch.full((2,), 45.0 * k, dtype=torch.float64)).flatten(1)
        torch.testing.assert_close(moved[:, k], other, atol=1e-6, rtol=0)
    assert defect(turns, x) > 0.05
    disc = Turns(Cyclic(8), 32)
    grid = torch.linspace(-1, 1, 32, dtype=torch.float64)
    smooth = 2 * torch.exp(-8 * ((grid[:, None] - 0.2).square() + grid.square())).flatten()[None] - 1
    assert defect(disc, smooth) < 0.02  # what is lost is what interpolation loses


@pytest.mark.parametrize("turns", [*EXACT, Turns(Cyclic(8), 4)], ids=str)
def test_each_takes_one_of_all(turns: Turns) -> None:
    x = noise(2, 5, turns.dim)
    which = torch.randint(turns.group.order, (2, 5), generator=torch.Generator().manual_seed(3))
    expected = turns.all(x).take_along_dim(which[..., None, None], -2)[..., 0, :]
    assert torch.equal(turns.each(x, which), expected)


# --- the players ---


@pytest.mark.parametrize("turns", EXACT, ids=str)
def test_equivariant_generator_moves_with_its_coin(turns: Turns) -> None:
    generator = make_generator("equivariant", turns)
    labels = torch.randint(3, (2, 6), generator=torch.Generator().manual_seed(0))
    z, which = generator.draw(labels, torch.Generator().manual_seed(1), torch.Generator().manual_seed(2))
    table = turns.group.cayley_table()
    for g in range(turns.group.order):
        moved = turns.each(generator(z, which, labels), torch.full_like(which, g))
        torch.testing.assert_close(generator(z, table[g, which], labels), moved, atol=1e-15, rtol=0)
    plain = replace(generator, kind="plain")
    assert torch.equal(plain(z, which, labels), plain(z, 0 * which, labels))


@pytest.mark.parametrize("turns", EXACT, ids=str)
def test_incomplete_generator_is_equivariant_behind_its_first_layer(turns: Turns) -> None:
    generator = make_generator("incomplete", turns)
    whole = generator.network
    rest = whole.with_parameters(whole.parameters[2:])
    rest.ties = whole.ties[1:]
    hidden = multiple(regular(turns.group), rest.inputs // turns.group.order)
    image = multiple(pixels(turns.group, turns.size), turns.channels)

    def residual(network: Players) -> float:
        z = noise(2, 7, rest.inputs)
        moves = [(m, image.matrix(g)) for g in turns.group.elements() for m in [hidden.matrix(g)]]
        return max(float((network(z @ a.mT) - network(z) @ b.mT).detach().abs().max()) for a, b in moves)

    assert residual(rest) < 1e-12
    rng = torch.Generator().manual_seed(0)
    loose = Players(Game(latent=rest.inputs - 3, width=12).layers(turns, 3)[0], 2, rng, torch.float64)
    assert residual(loose) > 0.1  # the same test on layers without ties


@pytest.mark.parametrize("turns", EXACT[:3], ids=str)
def test_ties_span_exactly_the_equivariant_maps(turns: Turns) -> None:
    hidden, one = multiple(regular(turns.group), 2), trivial(turns.group)
    image = multiple(pixels(turns.group, turns.size), turns.channels)
    for source, target in ((hidden, hidden), (one, hidden), (hidden, image), (one, image)):
        layer, haar = tied(source, target), projection(Hom(source, target))
        basis = layer.expand(torch.eye(layer.count, dtype=torch.float64))
        assert layer.count == haar.rank == int(torch.linalg.matrix_rank(basis.flatten(1)))
        assert torch.allclose(haar(basis), basis, atol=1e-12)
    with pytest.raises(TypeError, match="permutation"):
        tied(planar(turns.group), hidden)


@pytest.mark.parametrize("turns", [*EXACT, Turns(Cyclic(8), 4)], ids=str)
def test_invariant_discriminator_is_the_average(turns: Turns) -> None:
    network = make_judge(turns, 9, torch.Generator().manual_seed(0))
    x, labels = noise(2, 4, turns.dim), torch.tensor([[0, 1, 2, 2], [1, 1, 0, 2]])
    plain = Discriminator("plain", turns, network, 3)
    moved = turns.all(x)
    average = torch.stack([plain(moved[:, :, g], labels) for g in range(turns.group.order)]).mean(0)
    invariant = Discriminator("invariant", turns, network, 3)
    torch.testing.assert_close(invariant(x, labels), average, atol=1e-12, rtol=0)
    if turns.between is None:
        torch.testing.assert_close(invariant(moved[:, :, -1], labels), average, atol=1e-12, rtol=0)
        assert float((plain(moved[:, :, -1], labels) - plain(x, labels)).detach().abs().max()) > 1e-2


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("turns", EXACT, ids=str)
def test_parameters_are_matched(turns: Turns, kind: str) -> None:
    game = Game(f"{kind}/invariant", width=24)
    network = Players(game.layers(turns, 3)[0], 1, torch.Generator().manual_seed(0))
    judge = (turns.dim + 3 + 1) * 24 + 25 * 24 + 25
    assert game.parameters(turns, 3) == sum(p[0].numel() for p in network.parameters) + judge
    plain = Game(width=24).parameters(turns, 3)
    assert 0.8 * plain < game.parameters(turns, 3) <= plain


def test_players_are_told_the_class() -> None:
    turns = EXACT[0]
    generator = make_generator("plain", turns)
    a, b = (generator.sample(torch.full((1, 8), label), 0) for label in (0, 1))
    assert float((a - b).abs().amax()) > 1e-3
    single = make_generator("plain", turns, classes=1)
    assert single.network.inputs == 5
    assert generator.network.inputs == 8


# --- games ---


def parameters_of(played: object) -> list[Tensor]:
    return [*played.generator.network.parameters, *played.latest.network.parameters,
            *played.discriminator.network.parameters]  # fmt: skip


def largest_gap(a: list[Tensor], b: list[Tensor]) -> float:
    return max(float((x - y).detach().abs().max()) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("turns", EXACT[:2], ids=str)
def test_the_double_smart_pair_is_the_collapsing_pair_plus_a_coin(turns: Turns) -> None:
    base, sets = Game(width=10, batch=6, iterations=12, decay=0.9), small_sets()
    ends = {
        pairing: parameters_of(play(replace(base, pairing=pairing), turns, sets))
        for pairing in ("plain/plain", "plain/invariant", "equivariant/plain", "equivariant/invariant")
    }
    assert largest_gap(ends["plain/invariant"], ends["equivariant/invariant"]) < 1e-6
    assert largest_gap(ends["plain/plain"], ends["equivariant/plain"]) > 1e-2


def test_runs_do_not_touch_each_other() -> None:
    turns, sets, game = EXACT[0], small_sets(), Game("plain/invariant", width=8, batch=5, iterations=5)
    other = replace(sets, images=torch.cat([sets.images[:1], -sets.images[1:]]))
    a, b = (parameters_of(play(game, turns, s)) for s in (sets, other))
    assert all(torch.equal(x[0], y[0]) for x, y in zip(a, b, strict=True))
    assert largest_gap(a, b) > 1e-3


def test_first_step_follows_the_objective() -> None:
    turns, sets, seed = EXACT[0], small_sets(runs=1), 4
    game = Game(width=7, batch=5, iterations=1, rate=1e-3, penalty=0.7)
    played = play(game, turns, sets, seed)
    rng, coins = (torch.Generator().manual_seed(2 * seed + k) for k in range(2))
    judge = Discriminator("plain", turns, make_judge(turns, 7, rng, 1), 3)
    draw = Generator("plain", turns, Players(game.layers(turns, 3)[0], 1, rng, torch.float64), 3)
    real, labels = sets.batch(5, rng)
    fake = draw(*draw.draw(labels, rng, coins), labels)
    x = real.clone().requires_grad_(True)
    a, b = judge(x, labels), judge(fake.detach(), labels)
    loss = (torch.nn.functional.softplus(b.mean() - a) + torch.nn.functional.softplus(b - a.mean())).mean()
    slope = torch.autograd.grad(judge(x, labels).sum(), x, create_graph=True)[0]
    loss = loss + 0.7 * slope.square().sum(-1).mean() / 2
    gradients = torch.autograd.grad(loss, judge.network.parameters)
    for p, g, end in zip(judge.network.parameters, gradients, played.discriminator.network.parameters, strict=True):
        torch.testing.assert_close(end.detach(), (p - 1e-3 * g / (g.abs() + 1e-8)).detach(), atol=1e-10, rtol=0)


def test_moving_the_data_changes_nothing_if_every_image_is_symmetric() -> None:
    turns, sets, game = EXACT[1], small_sets(), Game(width=8, batch=5, iterations=5)
    flat = replace(sets, images=turns.all(sets.images).mean(-2))
    for data, same in ((flat, True), (sets, False)):
        a, b = (parameters_of(play(replace(game, augmented=moved), turns, data)) for moved in (False, True))
        assert (largest_gap(a, b) < 1e-6) is same


def test_average_of_the_generator() -> None:
    turns, sets, game = EXACT[0], small_sets(), Game(width=8, batch=5, iterations=3, decay=0.0)
    played = play(game, turns, sets)
    pairs = zip(played.generator.network.parameters, played.latest.network.parameters, strict=True)
    assert all(torch.equal(a, b.detach()) for a, b in pairs)


def test_a_game_learns_where_the_ink_is() -> None:
    image = torch.full((1, 16), -0.9)
    image[0, 5] = 0.9
    sets = pad_sets([(image, torch.zeros(1, dtype=torch.int64))])
    labels = torch.zeros(1, 50, dtype=torch.int64)
    plain = play(Game(width=16, iterations=150, batch=16), EXACT[0], sets).generator.sample(labels, 0)
    assert float((plain.mean(1) - image).abs().max()) < 0.3
    smart = play(Game("equivariant/invariant", 16, iterations=150, batch=16), EXACT[0], sets)
    drawn = smart.generator.sample(labels.expand(1, -1), 0)
    orbit = EXACT[0].all(image)[0]
    assert float((drawn[0, :, None] - orbit).abs().mean(-1).min(-1).values.max()) < 0.3
    assert len(torch.unique((drawn[0, :, None] - orbit).abs().mean(-1).argmin(-1))) == 4


@pytest.mark.parametrize("name", ["jsd", "wasserstein", "alpha"])
def test_other_objectives_train(name: str) -> None:
    game = Game("equivariant/invariant", width=8, batch=5, iterations=4, objective=name)
    played = play(game, EXACT[0], small_sets())
    assert float(played.generator.sample(torch.zeros(1, 3, dtype=torch.int64), 0).abs().max()) <= 1


# --- bad input ---


def test_bad_games() -> None:
    for pairing, word in (("clever/plain", "generator"), ("plain/incomplete", "discriminator")):
        with pytest.raises(ValueError, match=word):
            Game(pairing)


def test_bad_plays() -> None:
    with pytest.raises(ValueError, match="16 values"):
        play(Game(), EXACT[0], small_sets(dim=9))
    with pytest.raises(ValueError, match="incomplete"):
        play(Game("incomplete/plain"), Turns(Cyclic(8), 4), small_sets())


@pytest.mark.parametrize("name", ["relativistic", "wasserstein"])
def test_divergence_is_marked_and_does_not_stop_the_game(name: str) -> None:
    game = Game(rate=1e300, iterations=4, width=8, objective=name)
    assert play(game, EXACT[0], small_sets()).diverged.tolist() == [True, True]
    assert play(replace(game, rate=1e-3), EXACT[0], small_sets()).diverged.tolist() == [False, False]


def test_an_infinite_loss_is_marked_though_all_weights_are_finite() -> None:
    sets = small_sets()
    sets = replace(sets, images=sets.images.float())
    played = play(Game(rate=1e6, iterations=20, width=8), EXACT[0], sets)
    assert all(bool(p.isfinite().all()) for p in parameters_of(played))
    assert played.diverged.tolist() == [True, True]
