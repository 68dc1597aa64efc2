"""Image players: the symmetry identities before and after training, the controls, and equal parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from lib.gans.image_players import Discriminator, Generator, ImageNoise, matched_channels
from lib.gans.objectives import gradient_penalty
from lib.gans.planar_convolution import GROUPS, act_on_images

SIZES = (8, 14, 16, 28)
LABELS = torch.tensor([0, 3, 1, 2, 2])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def players(group: str, size: int = 8, kind: str = "equivariant", **settings) -> tuple[Generator, Discriminator]:
    both = {"size": size, "channels": 16, "classes": 4, "group": group} | settings
    return Generator(kind=kind, rng=rng(), **both), Discriminator(rng=rng(1), **both)


def exact_elements(group: str) -> Tensor:
    return GROUPS[group].elements()[:: 2 if group == "p8" else 1]


def double(noise: ImageNoise) -> ImageNoise:
    return ImageNoise(noise.z.double(), noise.element, noise.labels)


def residuals(generator: Generator, discriminator: Discriminator, noise: ImageNoise, g: Tensor) -> tuple[float, float]:
    """Return max |G(turn(noise, g)) − g G(noise)|, and max |D(g x) − D(x)| over max(1, |D|), for x = G(noise)."""
    with torch.no_grad():
        images, turned = generator(noise), generator(generator.turn(noise, g))
        moved = act_on_images(generator.group, g, images)
        scores = discriminator(images, noise.labels)
        change = discriminator(moved, noise.labels) - scores
    return float((turned - moved).abs().max()), float(change.abs().max() / scores.abs().max().clamp(min=1))


def train(generator: Generator, discriminator: Discriminator, steps: int = 5) -> None:
    """Take steps of both players on images with no symmetry at all."""
    draws, labels = rng(2), torch.arange(16) % 4
    real = torch.rand(16, *discriminator.shape, generator=draws).cumsum(-1) / discriminator.shape[-1] * 2 - 1
    optimisers = [torch.optim.Adam(p.parameters(), 0.01) for p in (generator, discriminator)]
    for _ in range(steps):
        for optimiser, sign in zip(optimisers, (-1, 1), strict=True):
            optimiser.zero_grad()
            gain = discriminator(generator(generator.draw(labels, draws)), labels) - discriminator(real, labels)
            (sign * gain.mean()).backward()
            optimiser.step()


@pytest.mark.parametrize("group", ["p4", "p4m", "p8"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("training", [True, False])
def test_identities_in_double_precision(group: str, size: int, training: bool) -> None:
    generator, discriminator = (p.double() for p in players(group, size, colours=3 if size == 16 else 1))
    noise = double(generator.draw(LABELS, rng()))
    generator(noise)  # running statistics other than the initial ones
    generator.train(training)
    elements = exact_elements(group)
    for g in (elements[-1], elements[torch.randint(len(elements), (5,), generator=rng())]):
        assert max(residuals(generator, discriminator, noise, g)) <= 1e-12


@pytest.mark.parametrize("group", ["p4", "p4m", "p8"])
def test_identities_after_training(group: str) -> None:
    generator, discriminator = players(group, 14)
    before = copy.deepcopy(generator.state_dict())
    train(generator, discriminator)
    assert not torch.equal(before["place.dense.weight"], generator.state_dict()["place.dense.weight"])
    discriminator.eval()
    noise = generator.draw(LABELS, rng())
    for training in (True, False):
        generator.train(training)
        for g in exact_elements(group):
            assert max(residuals(generator, discriminator, noise, g)) <= 1e-5


def test_plain_and_incomplete_players_break_them() -> None:
    for kind, group in (("incomplete", "p4"), ("plain", "none")):
        generator, discriminator = players(group, kind=kind)
        noise, g = generator.draw(LABELS, rng()), torch.tensor([1])
        images = generator(noise)
        moved = act_on_images("p4", g, images)
        assert torch.equal(generator(ImageNoise(noise.z, (noise.element + 1) % 4, LABELS)), images)
        assert float((images - moved).detach().abs().max()) > 0.1
        broken = float((discriminator(moved, LABELS) - discriminator(images, LABELS)).detach().abs().max())
        assert broken > 1e-3 if kind == "plain" else broken < 1e-5  # the incomplete pair's discriminator is invariant


def test_incomplete_generator_is_the_equivariant_one_at_the_identity() -> None:
    whole, incomplete = players("p4m")[0], players("p4m", kind="incomplete")[0]
    noise = whole.draw(LABELS, rng())
    neutral = ImageNoise(noise.z, torch.zeros_like(noise.element), LABELS)
    assert torch.equal(incomplete(noise), whole(neutral))
    moved = act_on_images("p4m", noise.element, incomplete(noise))
    assert float((whole(noise) - moved).detach().abs().max()) < 1e-5


@pytest.mark.parametrize(("size", "high"), [(8, 0.6), (28, 0.5)])
def test_eighth_turns_hold_approximately(size: int, high: float) -> None:
    """‖G(turn(noise)) − turned G(noise)‖ / ‖G(noise) − turned G(noise)‖ in the disc: .42 and .32; incomplete: 1."""
    ticks = torch.arange(size) - (size - 1) / 2
    disc = torch.hypot(ticks[:, None], ticks) <= size / 2 - 1
    shares = []
    for kind in ("equivariant", "incomplete"):
        generator = players("p8", size, kind, channels=64)[0]
        noise, g = generator.draw(torch.arange(40) % 4, rng()), torch.tensor([1])
        with torch.no_grad():
            images, turned = generator(noise), generator(generator.turn(noise, g))
            moved = act_on_images(generator.group, g, images)
        shares.append(float(((turned - moved) * disc).norm() / ((images - moved) * disc).norm()))
    assert 0.01 < shares[0] < high
    assert shares[1] == 1


@pytest.mark.parametrize("group", ["none", "p4m"])
def test_players_take_every_size(group: str) -> None:
    for size, colours in ((8, 1), (10, 1), (12, 3), (14, 1), (16, 3), (28, 1), (32, 3), (64, 3)):
        kind = "plain" if group == "none" else "equivariant"
        generator, discriminator = players(group, size, kind, colours=colours, channels=8)
        images = generator(generator.draw(LABELS[:2], rng()))
        assert images.shape == (2, colours, size, size)
        assert float(images.detach().abs().max()) <= 1
        assert discriminator(images, LABELS[:2]).shape == (2,)


def test_labels_matter() -> None:
    generator, discriminator = players("p4")
    train(generator, discriminator, 2)
    noise = generator.eval().draw(LABELS, rng())
    other = ImageNoise(noise.z, noise.element, (LABELS + 1) % 4)
    images = generator(noise)
    assert (images - generator(other)).flatten(1).norm(dim=1).min() > 1e-3
    assert (discriminator(images, LABELS) - discriminator(images, other.labels)).abs().min() > 1e-5


def test_scores_do_not_depend_on_the_other_images() -> None:
    _, discriminator = players("p4m")
    images = torch.rand(5, 1, 8, 8, generator=rng())
    alone = torch.cat([discriminator(images[[k]], LABELS[[k]]) for k in range(5)])
    assert torch.allclose(alone, discriminator(images, LABELS), atol=1e-6)


def test_gradient_penalty_reaches_every_convolution() -> None:
    _, discriminator = players("p4")
    images = torch.rand(5, 1, 8, 8, generator=rng())
    penalty = gradient_penalty(lambda x: discriminator(x, LABELS), images, -images, "real")[1]
    penalty.sum().backward()
    convolutions = [p for name, p in discriminator.named_parameters() if "weight.original" in name]
    assert len(convolutions) == 5
    assert all(float(p.grad.norm()) > 0 for p in convolutions)


def test_noise() -> None:
    labels = torch.arange(4000) % 4
    for group in ("p4", "p4m"):
        G, generator = GROUPS[group], players(group)[0]
        noise = generator.draw(labels, rng())
        again, plain = generator.draw(labels, rng()), players("none", kind="plain")[0].draw(labels, rng())
        assert torch.equal(noise.z, again.z)
        assert torch.equal(noise.element, again.element)
        assert torch.equal(noise.z, plain.z)  # kinds share their random numbers
        counts = torch.bincount(G.index(noise.element), minlength=G.order)
        assert float((counts - 4000 / G.order).square().sum() / (4000 / G.order)) < 4 * G.order  # chi-square
        assert abs(float(noise.z.mean())) < 0.01
        assert abs(float(noise.z.std()) - 1) < 0.01
        g = G.elements()[-1]
        assert torch.equal(generator.turn(noise, g).element, G.multiply(g, noise.element))
        assert generator.turn(noise, g).z is noise.z


def test_initialisation_is_reproducible_and_leaves_torch_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = players("p8"), players("p8")
    assert torch.equal(torch.rand(3), expected)
    for a, b in zip(first, second, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    other = Discriminator(size=8, rng=rng(7)).state_dict()
    assert not torch.equal(other["score.weight"], Discriminator(size=8, rng=rng(8)).state_dict()["score.weight"])


def test_states_can_be_copied() -> None:
    generator, discriminator = players("p4")
    train(generator, discriminator, 2)
    images = torch.rand(5, 1, 8, 8, generator=rng())
    for player in (generator, discriminator):
        player.eval()
    noise = generator.draw(LABELS, rng())
    for new in (players("p4"), copy.deepcopy((generator, discriminator))):
        new[0].load_state_dict(generator.state_dict())
        new[1].load_state_dict(discriminator.state_dict())
        assert torch.equal(new[0].eval()(noise), generator(noise))
        assert torch.equal(new[1].eval()(images, LABELS), discriminator(images, LABELS))


def parameters(player: torch.nn.Module) -> int:
    return sum(p.numel() for p in player.parameters())


@pytest.mark.parametrize("player", [Generator, Discriminator])
@pytest.mark.parametrize("group", ["p4", "p4m", "p8"])
def test_matched_channels(player: type, group: str) -> None:
    order, settings = GROUPS[group].order, {"size": 14, "classes": 4, "colours": 1}
    channels = matched_channels(player, 32, group, **settings)
    assert channels % order == 0
    plain = parameters(player(channels=32, group="none", rng=rng(), **settings))
    near = [
        parameters(player(channels=channels + change, group=group, rng=rng(), **settings))
        for change in (-order, 0, order)
    ]
    assert near[0] < near[1] < near[2]
    assert abs(near[1] - plain) <= min(abs(near[0] - plain), abs(near[2] - plain))
    if player is Discriminator:
        assert order**0.5 * 0.8 < channels / 32 < order**0.5 * 1.4
    assert matched_channels(player, 32, "none", **settings) == 32


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="channels must be a multiple of 8"):
        players("p4m", channels=12)
    with pytest.raises(ValueError, match="times a power of two, got 18"):
        players("p4", 18)
    with pytest.raises(ValueError, match="size must be between 8"):
        players("p4", 4)
