"""Training of two players on images: the same bits after a kill, divergence reported, bad checkpoints refused."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lib.gans import state as gan_state
from lib.gans.planar_convolution import GROUPS, act_on_images
from lib.gans.settings import PAIRINGS, Settings, build_players
from lib.gans.state import generate, to_uint8
from lib.gans.training import Trained, train
from lib.training.ensembles import generator_of

TINY = Settings(
    generator_channels=8,
    discriminator_channels=8,
    latent=8,
    classes=2,
    batch=4,
    iterations=12,
    generator_rate=1e-3,
    discriminator_rate=2e-3,
    ema_decay=0.9,
    augmentation="p4",
    save_every=5,
    sample_every=4,
    samples=4,
)


def bars(count: int = 16) -> tuple[Tensor, Tensor]:
    """Images with a bright upper half (class 0) or right half (class 1), with noise."""
    labels = torch.arange(count) % 2
    x = -torch.ones(count, 1, 8, 8)
    x[labels == 0, :, :4] = 0.8
    x[labels == 1, ..., 4:] = 0.8
    return x + 0.1 * torch.randn(x.shape, generator=generator_of(5)).clamp(-1, 1), labels


IMAGES, LABELS = (t if t.dtype == torch.int64 else t.clamp(-1, 1) for t in bars())


def play(settings: Settings = TINY, **others: Any) -> Trained:
    return train(settings, IMAGES, LABELS, progress=False, **others)


@pytest.fixture(scope="module")
def whole() -> Trained:
    return play()


def assert_same(a: Trained, b: Trained) -> None:
    """Everything but the time is the same to the last bit."""
    for name in ("generator", "latest", "discriminator"):
        one, two = (getattr(t, name).state_dict() for t in (a, b))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[k], two[k]) for k in one)
    assert (a.status, a.message, a.iterations) == (b.status, b.message, b.iterations)
    assert all(torch.equal(a.history[k], b.history[k]) for k in a.history)
    assert a.samples.keys() == b.samples.keys()
    assert all(torch.equal(a.samples[k], b.samples[k]) for k in a.samples)


# --- what a run is ---


def test_a_run_is_complete_and_depends_on_its_settings_only(whole: Trained) -> None:
    assert (whole.status, whole.message, whole.iterations) == ("finished", "", 12)
    assert all(len(values) == 12 and bool(values.isfinite().all()) for values in whole.history.values())
    assert list(whole.samples) == [4, 8, 12]
    assert whole.samples[12].shape == (4, 1, 8, 8)
    assert whole.samples[12].dtype == torch.uint8
    torch.manual_seed(99)  # the global generator plays no part
    state = torch.get_rng_state()
    assert_same(whole, play())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("change", [{"seed": 1}, {"augmentation": "none"}, {"penalty_weight": 1.0}], ids=str)
def test_every_setting_counts(whole: Trained, change: dict) -> None:
    other = play(replace(TINY, iterations=2, **change))
    assert not torch.equal(other.history["discriminator_loss"], whole.history["discriminator_loss"][:2])


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("group", ["p4", "p4m"])
def test_trained_players_keep_the_symmetry_and_only_those_that_should(pairing: str, group: str) -> None:
    run = play(replace(TINY, pairing=pairing, group=group, iterations=5, augmentation="none"))
    kind, judge = PAIRINGS[pairing]
    noise = run.generator.draw(LABELS, generator_of(1))
    fake, scores = run.generator(noise), run.discriminator(IMAGES, LABELS).detach()
    gaps, shifts = [], []
    for g in GROUPS[group].elements()[1:]:
        moved = run.generator(run.generator.turn(noise, g)) if kind != "plain" else fake
        gaps.append(float((moved - act_on_images(group, g, fake)).abs().max()))
        turned = run.discriminator(act_on_images(group, g, IMAGES), LABELS).detach()
        shifts.append(float((turned - scores).abs().max()))
    assert max(gaps) <= 1e-5 if kind == "equivariant" else min(gaps) > 1e-3
    assert max(shifts) <= 1e-5 if judge == "invariant" else min(shifts) > 1e-3


def test_average_is_the_recursion_in_its_docstring() -> None:
    expected = build_players(TINY, 8, 1)[0].state_dict()
    for n in range(1, 5):
        run = play(replace(TINY, iterations=n))
        latest, decay = run.latest.state_dict(), (n + 1) / (n + 10)
        expected = {k: decay * expected[k].double() + (1 - decay) * latest[k] for k in latest}
    actual = run.generator.state_dict()
    assert all(torch.allclose(actual[k].double(), expected[k], atol=1e-6) for k in actual if "num_batches" not in k)
    assert any(not torch.allclose(actual[k], latest[k], atol=1e-3) for k in actual)


def test_a_game_is_learnt() -> None:
    """From a hundred steps on, generated images are nearer to the data than before, and know their class."""
    settings = replace(TINY, iterations=120, batch=16, augmentation="none", pairing="plain/plain")
    run, start = play(settings), build_players(settings, 8, 1)[0].eval()
    labels = torch.arange(64) % 2
    means = torch.stack([IMAGES[c == LABELS].mean(0) for c in (0, 1)])

    def distance(x: Tensor) -> float:
        return float(torch.stack([(x[labels == c].mean(0) - means[c]).norm() for c in (0, 1)]).max())

    before, after = (distance(generate(g, labels, generator_of(3))) for g in (start, run.generator))
    assert after < before / 2


def test_generated_images_do_not_depend_on_how_many_are_made_at_once(whole: Trained) -> None:
    labels = torch.arange(8) % 2
    x = generate(whole.generator, labels, generator_of(3))
    assert x.shape == (8, 1, 8, 8)
    assert not x.requires_grad
    assert torch.equal(
        to_uint8(torch.tensor([-1.0, 0.0, 1.0, 3.0])), torch.tensor([0, 128, 255, 255], dtype=torch.uint8)
    )
    with pytest.raises(ValueError, match="batch"):
        generate(whole.generator, labels, generator_of(3), batch=0)


def test_one_class_needs_no_labels() -> None:
    run = train(replace(TINY, classes=1, iterations=1), IMAGES, None, progress=False)
    assert run.status == "finished"
    with pytest.raises(ValueError, match="labels must be given for 2 classes"):
        train(TINY, IMAGES, None, progress=False)


# --- stopped, killed, resumed ---


@pytest.mark.parametrize("at", [1, 5, 7])
def test_a_stopped_run_goes_on_to_the_same_bits(at: int, whole: Trained, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    part = play(checkpoint=path, stop=lambda n: n >= at)
    assert (part.status, part.iterations) == ("stopped", at)
    assert_same(play(checkpoint=path), whole)
    assert_same(play(checkpoint=path), whole)  # a finished run is only read


KILLED = """
import os, signal, sys, torch
sys.path.insert(0, {root!r})
torch.set_num_threads({threads})
from tests.test_gan_training import IMAGES, LABELS, TINY, train
train(TINY, IMAGES, LABELS, checkpoint={path!r}, progress=True,
      stop=lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == 8 else False)
"""


def test_a_killed_process_goes_on_to_the_same_bits(whole: Trained, tmp_path: Path) -> None:
    path, root = tmp_path / "run.pt", Path(__file__).parents[1]
    code = KILLED.format(root=str(root), path=str(path), threads=torch.get_num_threads())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=root)
    assert done.returncode == -signal.SIGKILL
    assert "equivariant/invariant, p4, seed 0" in done.stderr  # the bar
    assert done.stdout == ""
    assert torch.load(path, weights_only=True)["iteration"] == 5
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]
    assert_same(play(checkpoint=path), whole)


def test_a_longer_run_goes_on_from_a_finished_one(whole: Trained, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    play(replace(TINY, iterations=7), checkpoint=path)
    assert_same(replace(play(checkpoint=path), settings=TINY), whole)
    with pytest.raises(ValueError, match="12 iterations done"):
        play(replace(TINY, iterations=7), checkpoint=path)


def test_progress_is_shown_on_standard_error_unless_it_is_switched_off(capsys: pytest.CaptureFixture) -> None:
    play(replace(TINY, iterations=1))
    assert capsys.readouterr() == ("", "")
    train(replace(TINY, iterations=2), IMAGES, LABELS)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 3}, "batch = 4 \\(here 3\\)"),
        ({"seed": 3}, "seed = 0 \\(here 3\\)"),
        ({"pairing": "plain/plain", "generator_rate": 0.1}, "pairing = .*generator_rate = 0.001 \\(here 0.1\\)"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(change: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    play(replace(TINY, iterations=1), checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"checkpoint run.pt is of another run, with {message}"):
        play(replace(TINY, **change), checkpoint=path)
    with pytest.raises(ValueError, match="other training images"):
        train(TINY, -IMAGES, LABELS, checkpoint=path, progress=False)
    assert path.read_bytes() == before


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _other(_: bytes) -> bytes:
    return b"no checkpoint"


def _nothing(_: bytes) -> bytes:
    return b""


def _strange(_: bytes) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    torch.save({"weights": torch.ones(2)}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("damage", [_cut, _other, _nothing, _strange])
def test_a_damaged_checkpoint_is_refused(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    play(replace(TINY, iterations=1), checkpoint=path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"run\.pt cannot be read .* delete it to start from the beginning"):
        play(checkpoint=path)


def test_a_failure_while_writing_leaves_the_last_checkpoint(
    whole: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls, move = tmp_path / "run.pt", [], os.replace

    def fail_at_second(*names: Any) -> None:
        calls.append(names)
        if len(calls) == 2:
            raise OSError("no space")
        move(*names)

    monkeypatch.setattr(os, "replace", fail_at_second)
    with pytest.raises(OSError, match="no space"):
        play(checkpoint=path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]
    assert torch.load(path, weights_only=True)["iteration"] == 5
    assert_same(play(checkpoint=path), whole)


# --- divergence ---


def test_a_run_that_leaves_the_numbers_is_reported_and_stored(tmp_path: Path) -> None:
    path, wild = tmp_path / "run.pt", replace(TINY, objective="wasserstein", discriminator_rate=1e25)
    run = play(wild, checkpoint=path)
    assert run.status == "diverged"
    assert "not finite in iteration" in run.message
    assert run.iterations < 12
    assert len(run.history["margin"]) == run.iterations
    assert all(bool(v.isfinite().all()) for v in run.generator.state_dict().values())
    assert run.samples.keys() == {run.iterations}
    assert_same(play(wild, checkpoint=path), run)  # and stays so


@pytest.mark.parametrize("player", ["generator", "discriminator"])
def test_weights_that_are_not_finite_are_noticed_at_once(player: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = torch.optim.Adam.step

    def poisoned(self: torch.optim.Adam, *arguments: Any) -> Any:
        answer = step(self, *arguments)
        if self.param_groups[0]["lr"] == getattr(TINY, f"{player}_rate"):
            self.param_groups[0]["params"][0].data.view(-1)[0] = math.nan
        return answer

    monkeypatch.setattr(torch.optim.Adam, "step", poisoned)
    run = play()
    assert (run.status, run.iterations) == ("diverged", 0)
    assert run.message == f"a weight of the {player} was not finite in iteration 1"


def test_a_saturated_discriminator_ends_the_run_after_the_window_only() -> None:
    sharp = replace(TINY, generator_rate=0.0, window=6, saturation=0.0, iterations=200)
    run = play(sharp)
    assert run.status == "diverged"
    assert "saturated for 6 iterations in a row" in run.message
    margin = run.history["margin"]
    assert bool((margin[-6:] > 0).all())
    assert bool((margin.unfold(0, 6, 1)[:-1] <= 0).any(-1).all())
    assert play(replace(sharp, saturation=1e6, iterations=run.iterations)).status == "finished"


def test_saturation_is_counted_across_a_stop(tmp_path: Path) -> None:
    sharp, path = replace(TINY, generator_rate=0.0, window=6, saturation=0.0, iterations=200), tmp_path / "run.pt"
    run = play(sharp)
    play(sharp, checkpoint=path, stop=lambda n: n == run.iterations - 3)
    assert_same(play(sharp, checkpoint=path), run)
    assert_same(play(sharp, checkpoint=path), run)  # only read


# --- bad input ---


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("pairing", "plain", ValueError),
        ("group", "p3", ValueError),
        ("group", "none", ValueError),
        ("objective", "hinge", ValueError),
        ("penalty_weight", -1.0, ValueError),
        ("penalty_weight", "1", TypeError),
        ("augmentation", "turns", ValueError),
        ("batch", 1, ValueError),
        ("batch", 2.0, TypeError),
        ("iterations", -1, ValueError),
        ("seed", -1, ValueError),
        ("first_beta", 1.0, ValueError),
        ("ema_decay", math.nan, ValueError),
        ("generator_rate", -1e-4, ValueError),
        *((name, 0, ValueError) for name in ("latent", "classes", "samples", "window", "save_every", "sample_every")),
        *((f"{name}_channels", 0, ValueError) for name in ("generator", "discriminator")),
    ],
)
def test_settings_name_what_is_wrong(name: str, value: Any, error: type[Exception]) -> None:
    assert name in {f.name for f in fields(Settings)}
    with pytest.raises(error, match=name):
        replace(TINY, **{name: value})


@pytest.mark.parametrize(
    ("images", "labels", "error", "message"),
    [
        (IMAGES.numpy(), LABELS, TypeError, "images"),
        (IMAGES.long(), LABELS, TypeError, "images"),
        (IMAGES[:, :, :4], LABELS, ValueError, r"images must have shape \(n, c, h, h\)"),
        (IMAGES[:0], LABELS[:0], ValueError, r"images must have shape \(n, c, h, h\)"),
        (IMAGES[None], LABELS, ValueError, r"images must have shape \(n, c, h, h\)"),
        (3 * IMAGES, LABELS, ValueError, r"\[-1, 1\]"),
        (IMAGES * math.nan, LABELS, ValueError, "finite"),
        (IMAGES, LABELS.float(), TypeError, "labels"),
        (IMAGES, LABELS[:3], ValueError, "labels"),
        (IMAGES, LABELS + 1, ValueError, "labels"),
        (IMAGES, LABELS - 1, ValueError, "labels"),
    ],
)
def test_data_name_what_is_wrong(images: Any, labels: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        train(TINY, images, labels, progress=False)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="device must name a device of this machine, got 'abacus'"):
        play(device="abacus")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_a_gpu_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    path, whole = tmp_path / "run.pt", play(device="cuda")
    play(device="cuda", checkpoint=path, stop=lambda n: n == 7)
    assert_same(play(device="cuda", checkpoint=path), whole)
    with pytest.raises(ValueError, match="a device of type 'cuda'"):
        play(checkpoint=path)


def test_a_checkpoint_of_another_kind_of_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    play(replace(TINY, iterations=1), checkpoint=path)
    content = torch.load(path, weights_only=True)
    torch.save(content | {"device": "cuda"}, path)
    with pytest.raises(ValueError, match=r"a device of type 'cuda' \(here 'cpu'\)"):
        play(checkpoint=path)


def test_only_what_does_not_change_a_run_may_differ() -> None:
    assert set(gan_state.FREE) == {"iterations", "save_every"}
