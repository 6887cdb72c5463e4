"""Comparison of a broker's answers with Apache Kafka's, and list of intended differences.

Leaves the requests to `run`. An intended difference is recorded with its reason and with our
answer. Any other answer is a difference, and so is Kafka's own answer, since the entry is then
stale.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.differential.answers import Json
from tests.differential.run import Run

HERE: Final = Path(__file__).parent
GOLDEN: Final = HERE / "apache_kafka_4_1_0.json"
EXPECTED: Final = HERE / "expected_differences.json"
NOT_ASKED: Final = "not asked"

Answers = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences as texts, and the number of intended ones."""

    unexpected: Sequence[str]
    expected_count: int


def recorded() -> dict[str, Json]:
    """Return the recorded answers of Apache Kafka."""
    return dict(json.loads(GOLDEN.read_text()))


def meant() -> dict[str, Json]:
    """Return our answers to the operations with an intended difference."""
    return {rule["operation"]: rule["answer"] for rule in json.loads(EXPECTED.read_text())}


def compare(run: Run, golden: Answers, expected: Answers | None = None) -> Comparison:
    """Compare all answers of a broker; operations that it does not advertise are left out.

    `expected` are our answers to the operations with an intended difference.
    """
    left_out = {text.rpartition(": ")[0] for text in run.not_advertised}
    listed = meant() if expected is None else expected
    own = {name: answer for name, answer in listed.items() if name in golden}
    unexpected = differences(run.answers, {**golden, **own}, left_out)
    unexpected += [
        f"{name}\n  is expected to differ, and is what Kafka answers"
        for name in sorted(own)
        if own[name] == golden[name]
    ]
    return Comparison(unexpected, len(own))


def differences(mine: Answers, golden: Answers, left_out: set[str]) -> list[str]:
    """Return one text for each operation with another answer; a missing answer is a difference."""
    found = []
    for name in sorted({*mine, *golden} - left_out):
        here, there = mine.get(name, NOT_ASKED), golden.get(name, NOT_ASKED)
        if here != there:
            found.append(f"{name}\n  expected {json.dumps(there)}\n  found    {json.dumps(here)}")
    return found


def golden_text(answers: Answers) -> str:
    """Return the recorded answers as JSON with a line for each, so that changes can be read."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True, separators=(',', ':'))}"
        for name, answer in sorted(answers.items())
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"
