from hypothesis import given
from hypothesis import strategies as st

from trainer.best import Best
from trainer.evaluation import model_selection
from trainer.evaluation.model_selection import label_free_epoch


@given(ranks=st.lists(st.integers(1, 6).map(float), min_size=1, max_size=12), flat=st.none() | st.integers(0, 14))
def test_the_best_is_always_what_the_rule_chooses_of_all_so_far(ranks: list[float], flat: int | None) -> None:
    """The rule sees all checkpoints and the loss curve; ``Best`` sees one at a time."""
    pairs = list(enumerate(ranks, start=1))
    best, before = Best(), None
    for number, (epoch, rank) in enumerate(pairs, start=1):
        settled = flat is not None and epoch >= flat
        best = best.after(epoch, rank, settled=settled)
        expected = _chosen(pairs[:number], flat if settled else None)
        assert best.step == expected
        assert best.step in {before, epoch}, "what was chosen is still there to keep"
        before = best.step


def _chosen(pairs: list[tuple[int, float]], flat: int | None) -> int:
    whole = model_selection.plateau_epoch
    try:
        model_selection.plateau_epoch = lambda *_: flat
        return label_free_epoch([], pairs, 20)
    finally:
        model_selection.plateau_epoch = whole
