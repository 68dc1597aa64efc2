"""Calls of lib.reader."""

from __future__ import annotations

import torch

from lib.reader import audit, price, report, scale
from tests.calls import call, normal, numbers

HERE = "a report on data is computed on the CPU, in double precision"


@call(normal(64, 3), normal(64), double=HERE, cpu=HERE)
def report_of_columns(x, y):
    found = report.symmetry_report(x, "S3", "permute 1", y, draws=19, trials=2)
    return found, scale.told_apart(x, "S3", "permute 1", y)


@call(normal(64, 5, 5), numbers(2, 64), double=HERE, cpu=HERE)
def report_of_pictures(x, classes):
    return report.symmetry_report(x, "D4", "pixels", classes, draws=19, trials=2)


@call(normal(64, 4, 3), double=HERE, cpu=HERE)
def report_of_clouds(x):
    return report.symmetry_report(x, "SO3", "rotate", draws=19, trials=0)


@call(normal(120, 3), normal(120), double=HERE, cpu=HERE)
def price_of_columns(x, y):
    return price.price_of_symmetry(x, y, "C3", "permute 1", splits=3)


WEIGHTS = normal(4, 4)


def lopsided(x):
    return torch.tanh(x @ WEIGHTS.to(x)).sum(-1)


@call(normal(8, 4, 4), numbers(2, 8), double="errors are measured in double precision")
def audit_of_a_function(x, labels):
    found = audit.audit(lopsided, "C4", "pixels", "still", x)
    return found.error, audit.averaging_gain(lambda v: lopsided(v)[:, :2], "C4", "pixels", x, labels)
