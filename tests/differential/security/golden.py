"""Recorded answers of Apache Kafka, and the list of intended differences, for the script of
security.

Format: a JSON object with a line for each operation. The answers of one request of `rights_cases`
to all profiles are one line, `{"answers": [{"profiles": [...], "answer": ...}]}`, where equal
answers are written once. A reason for intended differences has `reason` and `answers`: a list of
our answers, each with the operations, or with the request and the profiles, that get it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from tests.differential.answers import Json
from tests.differential.comparison import golden_text as text_of

HERE: Final = Path(__file__).parent
GOLDEN: Final = HERE / "apache_kafka_4_1_0.json"
EXPECTED: Final = HERE / "expected_differences.json"
MARK: Final = " @ "
"""Between the request and the profile in the name of an operation of rights."""


def recorded_answers() -> dict[str, Json]:
    """Return the recorded answers of Apache Kafka; none before the first recording."""
    if not GOLDEN.exists():
        return {}
    found: dict[str, Json] = {}
    for name, answer in json.loads(GOLDEN.read_text()).items():
        if isinstance(answer, dict) and "answers" in answer:
            for group in answer["answers"]:
                found |= {f"{name}{MARK}{each}": group["answer"] for each in group["profiles"]}
        else:
            found[name] = answer
    return found


def expected_answers() -> dict[str, Json]:
    """Return our answers to the operations with an intended difference."""
    found: dict[str, Json] = {}
    for rule in json.loads(EXPECTED.read_text()):
        for row in rule["answers"]:
            names = list(row.get("operations", ()))
            names += [f"{row['request']}{MARK}{each}" for each in row.get("profiles", ())]
            found |= dict.fromkeys(names, row["answer"])
    return found


def golden_text(answers: Mapping[str, Json]) -> str:
    """Return the recorded answers as JSON, so that changes can be read."""
    joined: dict[str, Json] = {}
    by_request: dict[str, dict[str, list[str]]] = {}
    for name, answer in answers.items():
        request, mark, profile = name.partition(MARK)
        if not mark:
            joined[name] = answer
            continue
        groups = by_request.setdefault(request, {})
        groups.setdefault(json.dumps(answer, sort_keys=True), []).append(profile)
    for request, groups in by_request.items():
        rows = [{"profiles": names, "answer": json.loads(text)} for text, names in groups.items()]
        joined[request] = cast("Json", {"answers": rows})
    return text_of(joined)
