import numpy as np
import pytest
from scipy import stats

from trainer.evaluation.collapse import collapse_figures
from trainer.health import Health, judge
from trainer.trend import Trend

EPOCHS = 400
ALIKE = collapse_figures(np.ones((50, 4)) + 1e-3 * np.random.default_rng(0).normal(size=(50, 4)))
APART = collapse_figures(np.random.default_rng(1).normal(size=(50, 4)))


def states(losses: np.ndarray, epochs: int = EPOCHS) -> list[str]:
    """After each epoch."""
    health, found = Health(), []
    for loss in losses:
        health = health.after(float(loss), epochs)
        found.append(health.state(epochs).state)
    return found


def first(found: list[str], state: str) -> int | None:
    return found.index(state) + 1 if state in found else None


def test_one_look_in_between_is_no_collapse() -> None:
    health = Health()
    for figures, state in ((ALIKE, "healthy"), (APART, "healthy"), (ALIKE, "healthy"), (ALIKE, "collapsed")):
        health = health.looked(figures)
        assert health.state(EPOCHS).state == state
    assert health.looked(APART).state(EPOCHS).state == "healthy"


@pytest.mark.parametrize(
    ("vectors", "collapsed"),
    [
        (np.zeros((5000, 4)), True),
        (np.ones((40, 4)), True),
        (np.outer(np.linspace(-1, 1, 40), np.ones(4)), True),
        (np.random.default_rng(2).normal(size=(5000, 4)), False),
        (np.zeros((31, 4)), False),
    ],
    ids=["zero", "alike", "one line", "apart", "too few to tell"],
)
def test_what_was_made_in_the_end_is_judged_too(vectors: np.ndarray, collapsed: bool) -> None:
    found = judge(vectors)
    assert (found is not None) == collapsed
    if found is not None:
        assert found.state == "collapsed"
        assert "optimizer.lr" in str(found.reason)
        assert "standardize" in str(found.reason)


@pytest.mark.parametrize("noise", [0, 1e-9, 6e-4, 0.034])
@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_never_moves_is_stalled_from_a_quarter_of_the_run_on(noise: float, seed: int) -> None:
    """As at a learning rate of 0: random views, and a first epoch that is normalised otherwise."""
    losses = 7 * (1 + noise * np.random.default_rng(seed).normal(size=EPOCHS))
    losses[0] = 9
    found = states(losses)
    assert first(found, "stalled") == EPOCHS // 4
    assert found[-1] == "stalled"
    health = Health()
    for loss in losses:
        health = health.after(float(loss), EPOCHS)
    reason = health.state(EPOCHS).reason
    assert reason is not None
    assert "never moved" in reason


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_falls_little_among_noise_has_moved(seed: int) -> None:
    """By a twentieth over the run, with noise of a sixtieth."""
    losses = np.linspace(7, 6.65, EPOCHS) * (1 + 0.016 * np.random.default_rng(seed).normal(size=EPOCHS))
    assert states(losses)[-1] == "healthy"


def test_the_trend_is_that_of_a_line_fitted_at_once() -> None:
    losses = np.linspace(3, 2.9, 57) + np.random.default_rng(3).normal(scale=0.1, size=57)
    trend = Trend()
    for loss in losses:
        trend = trend.after(float(loss))
    line = stats.linregress(np.arange(57), losses)
    assert trend.t == pytest.approx(line.slope / line.stderr)
    assert trend.deviation == pytest.approx(losses.std() / losses.mean())


def test_a_loss_that_falls_and_then_stands_is_stalled_while_a_quarter_is_left() -> None:
    fall = np.maximum(10 - np.arange(EPOCHS) / 10, 0) + 1
    found = states(fall)
    # Flat from epoch 100 on, told by windows of 20: six of them until a quarter of the run is flat.
    assert first(found, "stalled") == 220
    assert found[-1] == "stalled"
    health = Health()
    for loss in fall:
        health = health.after(float(loss), EPOCHS)
    reason = health.state(EPOCHS).reason
    assert reason is not None
    assert "no longer moves" in reason


@pytest.mark.parametrize(
    "losses",
    [
        10 * np.exp(-np.arange(EPOCHS) / 300),
        np.maximum(10 - np.arange(EPOCHS) / 25, 0),
        np.linspace(1, 5, EPOCHS),
    ],
    ids=["falls to the end", "converges late", "rises"],
)
def test_a_loss_that_moves_is_healthy(losses: np.ndarray) -> None:
    assert set(states(losses)) == {"healthy"}


def test_a_loss_that_moves_again_is_healthy_again() -> None:
    step = np.where(np.arange(EPOCHS) < 40, 10.0, 5.0) - np.maximum(np.arange(EPOCHS) - 300, 0) / 20
    found = states(step)
    assert "stalled" in found
    assert found[-1] == "healthy"


def test_short_runs_have_no_curve_to_judge() -> None:
    assert set(states(np.ones(19), 19)) == {"healthy"}
