"""Scenarios as parameters of a test."""

from collections.abc import Iterable

import pytest

from tests.kafka.scenario import Scenario


def parameters(scenarios: Iterable[Scenario]) -> list[object]:
    """Return them with their titles as ids; a long one is marked."""
    return [
        pytest.param(
            scenario, id=scenario.title, marks=[pytest.mark.long] if scenario.is_long else []
        )
        for scenario in scenarios
    ]
