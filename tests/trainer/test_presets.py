import re
from pathlib import Path

import pytest

from trainer.settings import PRESETS, TrainSettings, resolve_preset


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_whole_and_gives_way_to_the_users_own(name: str) -> None:
    document = resolve_preset({"preset": name, "anchors": {"num_global": 77}})
    settings = TrainSettings.model_validate(document)
    assert (settings.preset, settings.anchors.num_global) == (name, 77)
    assert settings.anchors.num_local == PRESETS[name]["anchors"]["num_local"]
    assert settings.encoder.layers == PRESETS[name]["encoder"]["layers"]


def test_the_docs_list_every_preset() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / "settings.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"Published settings by `--preset`: ([^.]*)\.", text)
    assert [word for word in re.findall(r"[a-z]+", listed) if word in PRESETS] == list(PRESETS)
