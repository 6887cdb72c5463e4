"""Tests that every transcript produces its expected actions."""

from pathlib import Path

import pytest

from tests.scenarios import runner


@pytest.mark.parametrize("path", runner.scenario_files(), ids=runner.name_of)
def test_scenario(path: Path) -> None:
    scenario = runner.parse(path.name, path.read_text())
    assert scenario.steps
    assert runner.render(runner.play(scenario)) == runner.render(scenario)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# why\n\n",
        "protocol recovery\n",
        "# why\nprotocol nonsense\n",
        "# why\nprotocol recovery\n\nan event without its answer\n",
        "# why\nprotocol recovery\n\n----\nan answer without its event\n",
    ],
)
def test_malformed_transcripts_are_refused(text: str) -> None:
    with pytest.raises(runner.ScenarioError):
        runner.parse("test", text)


def test_a_wrong_expectation_is_reported_and_rewritten(tmp_path: Path) -> None:
    first = runner.scenario_files()[0]
    scenario = runner.parse(first.name, first.read_text())
    text = runner.render(scenario)
    broken = tmp_path / first.name
    broken.write_text(text.replace(scenario.steps[0].expected[0], "something else", 1))
    assert runner.main([str(broken)]) == 1
    assert runner.main(["--rewrite", str(broken)]) == 0
    assert broken.read_text() == text
