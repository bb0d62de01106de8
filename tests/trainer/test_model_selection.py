"""Plateaus and label-free choices on curves whose answer is known."""

from __future__ import annotations

import pytest

from trainer.evaluation.model_selection import label_free_epoch, plateau_epoch
from trainer.plateau import Plateau


def states(losses: list[float], window: int, tolerance: float) -> list[Plateau]:
    """The state after every epoch."""
    all_states = [Plateau()]
    for loss in losses:
        all_states.append(all_states[-1].after(loss, window, tolerance))
    return all_states[1:]


def curve(losses: list[float], every: int = 1) -> list[dict[str, float]]:
    return [{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses, 1) if (epoch - 1) % every == 0]


def test_windows_are_flat_by_their_share_of_the_range_covered() -> None:
    # Means 10, 6, 5, 4.9, 4.9, 3: steps of 4/4, 1/5, 0.1/5.1, 0 and 1.9/7 of the range so far.
    losses = [11.0, 9, 6, 6, 4, 6, 4.9, 4.9, 5, 4.8, 3, 3]
    assert [state.flat for state in states(losses, 2, 0.05)] == [0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 0]
    assert [state.flat for state in states(losses, 2, 0.2)][5] == 1
    last = states(losses, 2, 0.05)[-1]
    assert (last.mean, last.lowest, last.highest, last.epochs) == (3, 3, 10, 0)


def test_scale_sign_and_direction_of_the_loss_do_not_matter() -> None:
    losses = [11.0, 9, 6, 6, 4, 6, 4.9, 4.9, 5, 4.8]
    expected = [state.flat for state in states(losses, 2, 0.05)]
    for scale, shift in ((-1, 0), (1024, 0), (0.5, -100)):
        assert [state.flat for state in states([scale * x + shift for x in losses], 2, 0.05)] == expected


def test_a_constant_loss_is_flat_from_its_second_window() -> None:
    assert [state.flat for state in states([1.0] * 6, 2, 0.01)] == [0, 0, 0, 1, 1, 2]


def test_the_plateau_of_a_curve_and_of_the_same_curve_thinned() -> None:
    # 200 epochs are 20 windows of 10. Down to epoch 100, then flat: the means of the windows that end at 100 and 110
    # still differ, those at 110 and 120 do not.
    falling = [100.0 - epoch for epoch in range(100)] + [0.0] * 100
    assert plateau_epoch(curve(falling), 200) == 120
    assert plateau_epoch(curve(falling, every=5), 200) == 120
    assert plateau_epoch(curve([200.0 - epoch for epoch in range(200)]), 200) is None
    # Several points an epoch, as mini-batches report: their mean counts.
    several = [{"epoch": e, "loss": loss + d} for e, loss in enumerate(falling, 1) for d in (-3, 3)]
    assert plateau_epoch(several, 200) == 120


FLAT_AT_120 = curve([100.0 - epoch for epoch in range(100)] + [0.0] * 100)


@pytest.mark.parametrize(
    ("ranks", "chosen"),
    [
        # The first from the plateau on that no earlier one beats, though a later one is larger.
        ([(40, 9.0), (80, 7.0), (120, 8.0), (160, 9.5), (200, 10.0)], 160),
        ([(40, 5.0), (80, 6.0), (120, 6.0), (160, 9.5), (200, 10.0)], 120),
        # All are beaten by an early one: the largest of those from the plateau on.
        ([(40, 9.0), (80, 7.0), (120, 6.0), (160, 8.0), (200, 7.5)], 160),
        # No snapshot since the plateau but the last.
        ([(80, 9.0), (200, 1.0)], 200),
    ],
)
def test_the_choice_among_snapshots(ranks: list[tuple[int, float]], chosen: int) -> None:
    assert label_free_epoch(FLAT_AT_120, ranks, 200) == chosen


def test_without_a_plateau_or_a_curve_the_last_epoch_is_kept() -> None:
    ranks = [(100, 9.0), (200, 1.0)]
    assert label_free_epoch(curve([200.0 - epoch for epoch in range(200)]), ranks, 200) == 200
    assert label_free_epoch([], ranks, 200) == 200
