"""Convolutional players on images at scale: data, pieces, controls, the runner; tiny trainings only."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lib.experiments import gan_pieces as pieces
from lib.experiments import gans_at_scale as scale
from lib.experiments.gan_pieces import CASES, Case, Plan, classifier, pictures
from lib.gans.image_players import parameters
from lib.gans.settings import PAIRINGS, Settings, build_players
from lib.images import datasets
from lib.images.metrics import frechet_distance
from lib.training.ensembles import generator_of

TRAINING = Settings(generator_channels=8, discriminator_channels=8, batch=4, iterations=3)
PLAN = Plan(data="digits", size=8, shares=(0.02,), seeds=1, cases=("plain/plain",), training=TRAINING)
TISSUE = Plan(data="histology", size=8, shares=(0.1,), training=replace(TRAINING, classes=1))
COMMAND = ["--data", "digits", "--size", "8", "--shares", ".02", "--channels", "8", "--batch", "4", "--quiet"]
COMMAND += ["--iterations", "3", "--rates", "1e-4", "4e-4"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run from the command line: two cases, one seed."""
    folder = tmp_path_factory.mktemp("gans")
    scale.main([*COMMAND, "--seeds", "1", "--pairings", *PAIRINGS, "--device", "cpu", "--out", str(folder)])
    return folder


# --- cases and plans ---


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("plain/plain", Case("plain/plain")),
        ("equivariant/invariant@p8", Case("equivariant/invariant", "p8")),
        ("plain/plain+p4", Case("plain/plain", augmentation="p4")),
        ("equivariant/plain@p4m+p4m", Case("equivariant/plain", "p4m", "p4m")),
    ],
)
def test_cases_are_read_and_written(text: str, case: Case) -> None:
    assert Case.parse(text) == case
    assert str(case) == text


@pytest.mark.parametrize("text", ["", "plain", "plain/plain@p3", "plain/plain+turns", "equivariant/invariant@none"])
def test_cases_name_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Case.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "faces"}, "data"),
        ({"size": 7}, "size"),
        ({"size": 14}, "size must be 8 for digits"),
        ({"data": "mnist", "size": 16}, "size must be 14 or 28"),
        ({"rotations": "all"}, "rotations"),
        ({"cases": ()}, "cases"),
        ({"cases": ("plain/plain", "smart")}, "pairing"),
        ({"shares": ()}, "shares"),
        ({"shares": (0.0,)}, "shares"),
        ({"shares": (0.5, 1.5)}, "shares"),
        ({"seeds": 0}, "seeds"),
        ({"first_seed": -1}, "first_seed"),
        ({"match": "time"}, "match"),
    ],
)
def test_plans_name_what_is_wrong(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **change)


@pytest.mark.parametrize("group", ["p4", "p4m", "p8"])
def test_matched_players_have_equal_parameters_or_equal_width(group: str) -> None:
    plan = replace(PLAN, training=replace(TRAINING, generator_channels=64, discriminator_channels=64))
    smart, plain = Case("equivariant/invariant", group), Case("plain/plain", group)
    counts = {}
    for match in pieces.MATCHES:
        chosen = [replace(plan, match=match).settings(case, 0) for case in (smart, plain)]
        counts[match] = [[parameters(p) for p in build_players(s, 8, 1)] for s in chosen]
        widths = {(s.generator_channels, s.discriminator_channels) for s in chosen}
        assert (len(widths) == 1) == (match == "width")
    for smart_count, plain_count in zip(*counts["parameters"], strict=True):
        assert abs(smart_count / plain_count - 1) < 0.15
    assert counts["width"][0][1] < 0.5 * counts["width"][1][1]


def test_settings_of_a_mixed_pairing_match_the_symmetric_player_only() -> None:
    settings = PLAN.settings(Case("equivariant/plain"), 3)
    assert (settings.seed, settings.discriminator_channels) == (3, 8)
    assert settings.generator_channels > 8


# --- data ---


def test_a_share_of_the_digits_is_drawn_and_turned() -> None:
    data, other = pictures(PLAN, 0.02, 0), pictures(PLAN, 0.02, 1)
    assert (len(data.images), len(data.real)) == (24, 597)
    assert float(data.images.min()) >= -1
    assert float(data.images.max()) <= 1
    assert not torch.equal(data.images, other.images)
    assert torch.equal(data.real, other.real)
    upright = pictures(replace(PLAN, rotations="none"), 0.02, 0)
    assert torch.equal(data.labels, upright.labels)
    turns = torch.stack([torch.rot90(upright.images, k, (-2, -1)) for k in range(4)])
    found = (turns == data.images).flatten(2).all(-1)
    assert bool(found.any(0).all())
    assert bool((found.sum(1) > 0).all())  # every quarter turn occurs


def test_any_angle_is_more_than_quarter_turns() -> None:
    data, upright = (pictures(replace(PLAN, rotations=how), 0.02, 0).images for how in ("any", "none"))
    turns = torch.stack([torch.rot90(upright, k, (-2, -1)) for k in range(4)])
    assert float((turns - data).abs().amax((0, 2, 3, 4)).min()) > 0.1


def _mnist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Write files like those of MNIST, and let them pass for it."""
    rng = np.random.default_rng(0)
    images, labels = np.zeros((10_000, 28, 28), np.uint8), rng.integers(0, 10, 10_000).astype(np.uint8)
    images[:, 6:22, 10:18] = rng.integers(0, 256, (10_000, 1, 1))
    for file, head, values in (("MNIST_IMAGES", 16, images), ("MNIST_LABELS", 8, labels)):
        content = bytes(head) + values.tobytes()
        old = getattr(datasets, file)
        (folder / f"{old.name}.gz").write_bytes(gzip.compress(content, 1))
        monkeypatch.setattr(datasets, file, replace(old, sha256=hashlib.sha256(content).hexdigest()))
    monkeypatch.setenv(datasets.VARIABLE, str(folder))
    return torch.from_numpy(images)


def test_mnist_is_turned_before_it_is_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _mnist(tmp_path, monkeypatch)
    plan = Plan(rotations="turns")
    data, upright = pictures(plan, 0.01, 0), pictures(replace(plan, rotations="none"), 0.01, 0)
    assert data.images.shape == (70, 1, 14, 14)
    assert data.real.shape == (3000, 1, 14, 14)
    turns = torch.stack([torch.rot90(upright.images, k, (-2, -1)) for k in range(4)])
    assert bool(((turns - data.images).abs().flatten(2).amax(-1) < 1e-6).any(0).all())
    slanted, full = (pictures(replace(plan, size=n, rotations="any"), 0.01, 0).images for n in (14, 28))
    assert torch.allclose(slanted, full.unflatten(-1, (14, 2)).unflatten(-3, (14, 2)).mean((-1, -3)), atol=1e-6)


def test_tissue_has_colours_and_no_classes() -> None:
    data = pictures(TISSUE, 0.1, 0)
    assert data.images.shape[1:] == (3, 8, 8)
    assert not data.labels.any()
    assert not data.real_labels.any()
    assert TISSUE.turned == "none"


# --- scores ---


def test_scores_of_plain_samples_do_not_depend_on_the_floor_but_lie_above_it(stored: Path) -> None:
    table, _ = scale.load("digits_8_parameters", stored)
    floor = table["real"]["frechet"]
    assert 0 < floor < 0.1
    for piece in table["pieces"]:
        assert piece["scores"]["frechet"] > 5 * floor
        assert piece["scores"]["coverage"] < table["real"]["coverage"]


def test_stored_distances_are_those_of_the_features_in_float64() -> None:
    """A generator that is a fixed set of real images: the score must be the distance of the features."""
    data, judge = pictures(PLAN, 1.0, 0), classifier(PLAN)
    floor = pieces.real_scores(PLAN)
    assert floor["images"] == 597
    x, y = (judge.features(v) for v in (data.real, data.images[:597]))
    assert x.dtype == torch.float64
    assert floor["frechet"] == pytest.approx(float(frechet_distance(x, y)), rel=1e-9)


def test_the_control_turns_samples_and_helps_a_generator_without_orientations() -> None:
    """Upright digits turned at random are nearer to turned digits: what the stored control can show."""
    upright = pictures(replace(PLAN, rotations="none"), 1.0, 0).images[:597]
    real, judge = pictures(PLAN, 0.02, 0).real, classifier(PLAN)
    moved = pieces.moved("p4", upright, generator_of(13))
    before, after = (float(frechet_distance(judge.features(real), judge.features(x))) for x in (upright, moved))
    assert after < before / 5
    turns = torch.stack([torch.rot90(upright, k, (-2, -1)) for k in range(4)])
    assert bool((turns == moved).flatten(2).all(-1).any(0).all())


def test_residuals_tell_which_player_knows_the_group(stored: Path) -> None:
    table, _ = scale.load("digits_8_parameters", stored)
    for piece in table["pieces"]:
        kinds = PAIRINGS[piece["pairing"]]
        for player, kind in zip(("generator", "discriminator"), kinds, strict=True):
            gap = piece["residuals"][player]
            assert gap <= 1e-5 if kind in ("equivariant", "invariant") else gap > 1e-3


def test_eighth_turns_are_kept_apart() -> None:
    piece, _ = pieces.run_piece(PLAN, Case("equivariant/invariant", "p8"), 0.02, 0)
    assert piece["residuals"]["generator"] <= 1e-5
    assert piece["residuals"]["discriminator"] <= 1e-5
    assert piece["residuals"]["generator_eighths"] > 1e-3


# --- the runner ---


def test_a_table_holds_everything(stored: Path) -> None:
    table, grids = scale.load("digits_8_parameters", stored)
    assert sorted(p.name for p in stored.iterdir()) == ["digits_8_parameters.json", "digits_8_parameters.npz", "parts"]
    assert [p["case"] for p in table["pieces"]] == list(PAIRINGS)
    assert {"device", "commit", "versions", "date", "plan", "seconds", "classifier", "real"} <= set(table)
    assert table["plan"]["rotations"] == "turns"
    assert table["classifier"]["class_accuracy"] > 0.9
    assert all(p["status"] == "finished" and p["iterations"] == 3 for p in table["pieces"])
    assert all(len(p["curves"]["margin"]) == 3 and p["generator"]["parameters"] > 0 for p in table["pieces"])
    assert [("turned" in p) for p in table["pieces"]] == [p.startswith("plain/") for p in PAIRINGS]
    assert set(grids) == {f"{p}/0.02/0" for p in PAIRINGS}
    assert all(g.shape == (20, 1, 8, 8) and g.dtype == np.uint8 for g in grids.values())
    assert (stored / "parts" / ".gitignore").read_text() == "*\n"
    assert not list((stored / "parts").glob("*.pt"))


def test_finished_pieces_are_used_again_and_others_computed(
    tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, done = shutil.copytree(stored, tmp_path / "copy"), []

    def run(plan: Plan, case: Case, share: float, seed: int, *rest: Any) -> tuple[dict, Tensor]:
        done.append((str(case), seed))
        return {"case": str(case), "seed": seed, "seconds": 0.0}, torch.zeros(20, 1, 8, 8, dtype=torch.uint8)

    monkeypatch.setattr(scale, "run_piece", run)
    plan = replace(PLAN, seeds=2, cases=("plain/plain",))
    scale.run_grid(plan, folder, progress=False)
    assert done == [("plain/plain", 1)]
    scale.run_grid(replace(plan, training=replace(TRAINING, batch=5), seeds=1), folder, progress=False)
    assert done[1:] == [("plain/plain", 0)]
    scale.run_grid(plan, folder, progress=False, name="two_seeds")
    assert len(done) == 2  # under another name, from the same parts
    assert [p["seed"] for p in scale.load("two_seeds", folder)[0]["pieces"]] == [0, 1]
    assert [p["seed"] for p in scale.load("digits_8_parameters", folder)[0]["pieces"]] == [0]


def test_a_run_killed_within_a_piece_goes_on_to_the_same_numbers(
    tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, cases=("plain/plain",), training=replace(TRAINING, save_every=1))
    real, calls = pieces.train, []

    def interrupted(*arguments: Any) -> Any:
        if not calls:
            calls.append(real(*arguments, stop=lambda n: n == 2))
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(pieces, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scale.run_grid(plan, tmp_path, tmp_path / "states", progress=False)
    assert not list(tmp_path.glob("*.json"))
    state = torch.load(next((tmp_path / "states").glob("*.pt")), weights_only=True)
    assert state["iteration"] == 2
    scale.run_grid(plan, tmp_path, tmp_path / "states", progress=False)
    resumed, whole = (scale.load("digits_8_parameters", folder)[0]["pieces"][0] for folder in (tmp_path, stored))
    for piece in (resumed, whole):
        piece.pop("seconds")
    assert resumed == whole
    assert len(list((tmp_path / "states").glob("*.pt"))) == 1  # asked for, so kept


def test_what_does_not_fit_is_refused_before_any_work(tmp_path: Path) -> None:
    wrong = replace(TRAINING, generator_channels=10)
    with pytest.raises(ValueError, match="channels must be a multiple of 4 for p4, got 10"):
        scale.run_grid(replace(PLAN, match="width", cases=CASES, training=wrong), tmp_path)
    with pytest.raises(ValueError, match="size must be 4, 5, 6 or 7 times a power of two, got 9"):
        scale.run_grid(replace(TISSUE, size=9), tmp_path)
    assert not list(tmp_path.iterdir())


def test_distances_are_read_by_share_and_seed() -> None:
    def piece(share: float, seed: int, value: float) -> dict:
        return {"case": "plain/plain", "share": share, "seed": seed, "scores": {"frechet": value}} | {
            "turned": {"p4": {"frechet": value / 2}}
        }

    values = {(0.1, 3): 1.0, (1.0, 3): 2.0, (0.1, 5): 3.0, (1.0, 5): 4.0}
    table = {"plan": {"shares": [0.1, 1.0]}, "pieces": [piece(*key, v) for key, v in values.items()]}
    expected = torch.tensor([[1.0, 3.0], [2.0, 4.0]], dtype=torch.float64)
    assert torch.equal(scale.frechet_of(table, "plain/plain"), expected)
    assert torch.equal(scale.frechet_of(table, "plain/plain", turned="p4"), expected / 2)
    with pytest.raises(ValueError, match=r"case must be one of \['plain/plain'\], got 'smart/smart'"):
        scale.frechet_of(table, "smart/smart")
    with pytest.raises(ValueError, match="turned must be None or a group stored for 'plain/plain', got 'p8'"):
        scale.frechet_of(table, "plain/plain", turned="p8")


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no stored result mnist_14_width\.json; make it with python -m"):
        scale.load("mnist_14_width", tmp_path)


@pytest.mark.parametrize(
    "wrong", [["--data", "faces"], ["--match", "time"], ["--rotations", "all"], ["--iterations", "many"]]
)
def test_the_command_line_refuses_what_it_does_not_know(wrong: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        scale.main([*COMMAND, *wrong, "--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_the_command_line_says_what_was_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        scale.main([*COMMAND, "--pairings", "smart/smart", "--out", str(tmp_path)])
    assert "pairing must be one of" in capsys.readouterr().err


def test_stored_numbers_are_json_without_nan(stored: Path) -> None:
    text = (stored / "digits_8_parameters.json").read_text(encoding="utf-8")
    assert json.dumps(json.loads(text), allow_nan=False)
