"""Calls of lib.gans."""

from __future__ import annotations

from dataclasses import replace

import torch

from lib.checks import seeded
from lib.gans import (
    image_players,
    layers,
    mixtures,
    objectives,
    pixel_games,
    planar_convolution,
    plane_games,
    plane_players,
)
from lib.images.laws import pad_sets
from lib.images.turns import Turns
from lib.symmetry.actions import planar
from lib.symmetry.groups import Cyclic
from tests.calls import call, normal, numbers

C4 = Cyclic(4)
PLANE = planar(C4)


@call(normal(2, 5), normal(2, 4), normal(2, 5, 3), normal(2, 5, 3), powers=4, draws=True)
def rules_of_the_game(real_scores, fake_scores, real, fake):
    out = []
    for name in objectives.NAMES:
        rule = objectives.objective(name)
        out += [rule.value(real_scores, fake_scores), rule.generator_loss(real_scores, fake_scores)]
        out.append(rule.discriminator_loss(lambda x: x.square().sum(-1), real, fake, seeded(0)))
    for kind in objectives.PENALTIES:
        out += objectives.gradient_penalty(lambda x: x.square().sum(-1), real, fake, kind, seeded(0))
    return out


@call(normal(2, 5, 3), normal(2, 4, 3), samples=(0, 1))
def loss_without_a_player(x, y):
    return mixtures.mmd_loss(x, y, mixtures.gaussian_kernel((0.5, 1.0)))


MIXTURE, STUDENT = mixtures.Mixture(4), mixtures.Mixture(4, freedom=0.5)


@call(normal(2, 6, 4))
def mixture(points):
    drawn = [m.sample((2, 3), seeded(0), points.dtype) for m in (MIXTURE, STUDENT)]
    drawn.append(MIXTURE.reference((2, 8), seeded(0), points.dtype))
    moved = [points + x.to(points).mean() for x in drawn]
    return MIXTURE.sector(points), moved, mixtures.squash(points), mixtures.unsquash(points)


@call(normal(2, 6, 4), samples=(0,), double="shares are in double precision")
def shares_of_sectors(points):
    return MIXTURE.shares(points)


@call(normal(2, 6, 4), normal(2, 5, 4), samples=(0, 1), double="distances are in double precision")
def scores_of_samples(points, truth):
    return list(mixtures.score(points, truth, MIXTURE).values())


# --- players in the plane

TIE = layers.filters(plane_players.group_matrices(PLANE), 2, back=True)
GENERATOR = plane_players.make_generator("equivariant", PLANE, 2, seeded(0), width=4, dtype=torch.float64)
JUDGE = plane_players.make_discriminator("plain", PLANE, 2, seeded(1), width=4, dtype=torch.float64)


@call(
    *(p.detach() for p in (*GENERATOR.parameters, *JUDGE.parameters)),
    normal(2, 5, 8),
    normal(2, 3, TIE.count),
    powers=9,
)
def plane_networks(*tensors):
    *weights, noise, free = tensors
    split = len(GENERATOR.parameters)
    g, d = GENERATOR.with_parameters(weights[:split]), JUDGE.with_parameters(weights[split:])
    points = g(noise)
    both = layers.side_by_side([d, d], torch.cat([points, points]))
    averaged = plane_players.averaged(d, PLANE)(points)
    return points, both, averaged, TIE.expand(free[0])


@call(normal(1, dtype=torch.float32))
def game_in_the_plane(like):
    how = plane_games.Settings(seeds=2, samples=(8,), iterations=2, batch=4, width=4)
    pairings = [f"equivariant/averaged{plane_games.TURNED}", "plain/plain"]
    games = plane_games.play(replace(how, objective="alpha"), pairings, mixtures.Mixture(), like.device).values()
    out = [[game.data, game.snapshots, game.diverged, *game.generator.parameters] for game in games]
    return out, [game.draw(3, seeded(0)) for game in games]


# --- players of small images

TURNS = {"exact": Turns(C4, 4), "between": Turns(Cyclic(8), 4)}


@call(normal(2, 3, 16).tanh(), numbers(4, 2, 3))
def turned_pixels(images, which):
    return [[t.all(images), t.each(images, which)] for t in TURNS.values()]


@call(normal(2, 6, 16).tanh(), numbers(2, 2, 6), draws=True)
def game_of_pixels(images, labels):
    rows = [(images[0], labels[0]), (images[1, :5], labels[1, :5])]
    data = pad_sets(rows, 2)
    out = []
    for pairing in ("equivariant/invariant", "incomplete/plain"):
        game = pixel_games.Game(pairing, width=6, latent=3, batch=4, iterations=2, augmented=True)
        played = pixel_games.play(game, TURNS["exact"], data)
        drawn = played.generator.sample(data.labels[0], 1)
        out += [drawn, played.discriminator(drawn, data.labels[:, :6])]
    return out, data.batch(3, seeded(0))


# --- players of images


@call(normal(2, 1, 6, 6), normal(2, 8, 6, 6), numbers(4, 2, 1))
def planar_actions(images, features, g):
    out = [planar_convolution.act_on_images(group, g[:, :1] % 2, images) for group in ("none", "p4", "p8")]
    return (
        out,
        planar_convolution.act_on_features("p4", g, features),
        planar_convolution.act_on_features("p8", g, features),
    )


@call(normal(2, 8, 6, 6))
def pooled_features(features):
    return planar_convolution.upsample(features), planar_convolution.downsample(features)


@call(normal(6, 1, 8, 8, dtype=torch.float32).tanh(), numbers(2, 6))
def players_of_images(images, labels):
    out = []
    for pairing, group in (("equivariant/invariant", "p4"), ("incomplete/invariant", "p8")):
        both = image_players.players(pairing, group, 8, classes=2, channels=8, latent=3)
        generator, discriminator = (player.to(images.device) for player in both)
        noise = generator.draw(labels, seeded(0))
        out += [generator(noise), generator(generator.turn(noise, labels[:, None])), discriminator(images, labels)]
    return out, planar_convolution.move_images("p4", images, seeded(0))
