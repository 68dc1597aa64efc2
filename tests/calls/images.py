"""Calls of lib.images."""

from __future__ import annotations

import torch

from lib.checks import seeded
from lib.images import features, histology, laws, metrics, sets
from lib.images.turns import Turns
from lib.symmetry.groups import Cyclic
from tests.calls import call, normal, numbers

WIDE = "features and scores are computed in double precision"


@call(numbers(256, 3, 9, 9))
def patches(image):
    return histology.cut_patches(image, 3, 2)


@call(normal(4, 2, 8, 8).tanh(), torch.tensor([0.0, 90.0, 30.0, 180.0], dtype=torch.float64))
def turned_images(images, degrees):
    return sets.rotate_images(images, degrees), sets.darkest_side(images), sets.check_images("images", images)


@call(normal(12, 4), normal(10, 4), double=WIDE, samples=(0, 1))
def scores_of_features(x, y):
    law_of_x = metrics.moments(x)
    out = [law_of_x, metrics.gaussian_frechet(law_of_x, metrics.moments(y))]
    return out, metrics.coverage(x, y, 2)


@call(numbers(3, 2, 7), double="shares of integer labels are in double precision")
def rarest_of_labels(labels):
    return metrics.rarest(labels, 3)


@call(normal(12, 1, 8, 8).tanh(), numbers(3, 12), normal(12, 1, 8, 8).tanh(), double=WIDE)
def trained_classifier(images, classes, fake):
    data = sets.LabelledImages(images, classes)
    classifier = features.train_classifier(data, 1)
    network, seen = classifier.network, classifier.predict(fake)
    out = [network(images.float()), network.features(images.float()), classifier.features(fake), seen]
    return out, classifier.centre


@call(normal(12, 64).tanh(), numbers(3, 12), normal(2, 9, 64).tanh(), double=WIDE)
def law_of_images(images, classes, drawn):
    square, turns = images.unflatten(-1, (1, 8, 8)), Turns(Cyclic(4))
    data = sets.LabelledImages(square, classes)
    classifier = features.train_classifier(data, 1)
    elements = torch.arange(4, device=images.device)
    law = laws.ImageLaw("small", turns, turns, elements, images, classes, images, 3, classifier)
    known = law.sets([4, 6], [0, 1])
    out = [law.moved(images, seeded(0)), law.features(images), known.images, *known.batch(3, seeded(0))]
    return out, list(law.scores(drawn).values()), laws.darkest_up(square)
