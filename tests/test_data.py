"""Bundled data: what is installed is what the manifest names."""

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml

from lib.images.bundled import PHOTOGRAPHS, digits, photograph

MANIFEST = yaml.safe_load((Path(__file__).parents[1] / "data" / "manifest.yml").read_text())
INSTALLED = [name for name, row in MANIFEST.items() if "package" in row]


@pytest.mark.parametrize("name", INSTALLED)
def test_installed_files_are_those_of_the_manifest(name):
    row = MANIFEST[name]
    path = Path(find_spec(row["package"]).origin).parent / row["file"]
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == row["sha256"]


def test_every_data_set_has_a_source_and_a_licence():
    assert {"digits", *PHOTOGRAPHS} <= set(INSTALLED)
    for row in MANIFEST.values():
        assert row["what"]
        assert row["source"]
        assert row["licence"]


def test_digits_are_split_without_loss():
    data = digits(train=1000, seed=3)
    assert len(data.train_x) == len(data.train_y) == 1000
    assert len(data.test_x) == len(data.test_y) == 797
    assert data.train_x.min() == 0.0
    assert data.train_x.max() == 1.0
    everything = torch.cat([data.train_x, data.test_x]).sum()
    assert torch.isclose(everything, torch.cat([digits().train_x, digits().test_x]).sum())
    assert sorted(set(data.train_y.tolist())) == list(range(10))
    assert digits(torch.float32).train_x.dtype == torch.float32


def test_splits_depend_on_the_seed_only():
    assert torch.equal(digits(seed=1).train_x, digits(seed=1).train_x)
    assert not torch.equal(digits(seed=1).train_x, digits(seed=2).train_x)


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_photographs_are_colour_squares(name):
    image = photograph(name, 32)
    assert image.shape == (32, 32, 3)
    assert 0.0 <= image.min() < image.max() <= 1.0
