"""A sample of the drawn schedules of `schedule_draws.py`."""

from __future__ import annotations

import random

import pytest
from schedule_draws import GOOD, Outcome, outcomes
from scheduled_functions import KINDS


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_schedules_are_right_or_refused(kind: str) -> None:
    """In the words of float64's bounds and of other schedules, under all checks of the interpreter."""
    draw = random.Random(1)
    made: list[Outcome] = []
    while sum(one.kind == "right" for one in made) < 2:
        made += outcomes(KINDS[kind](draw), draw, 3)
    assert [one for one in made if one.kind not in GOOD] == []
