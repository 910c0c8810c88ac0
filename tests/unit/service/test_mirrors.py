"""How often shards are mirrored, as a spec says it."""

from __future__ import annotations

import pytest

from service.domain.errors import SpecRefused
from service.domain.parsing import parse_spec


@pytest.mark.parametrize(
    ("written", "meant"), [("auto", "auto"), ("off", "off"), (False, "off"), (True, "auto"), (20, 20)]
)
def test_the_forms_of_mirrors(written: object, meant: object) -> None:
    """A YAML file's `off` arrives as false."""
    assert parse_spec({"model": "gpt-tiny", "mirrors": written}).mirrors == meant


@pytest.mark.parametrize("written", [0, -1, "never", 2.5])
def test_what_is_no_number_of_steps_is_refused(written: object) -> None:
    with pytest.raises(SpecRefused) as refused:
        parse_spec({"model": "gpt-tiny", "mirrors": written})
    assert refused.value.problems[0].field.startswith("mirrors")
