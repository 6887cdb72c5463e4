"""ARCHITECTURE.md follows calls through the code: its steps name functions that exist.

Leaves the existence of the named files to `test_links`.
"""

import re
from pathlib import PurePosixPath
from typing import Final

import pytest

from tests.tidy.test_tidy import PRODUCT, ROOT

STORY_FILES_MAX: Final = 12
LINE_CHARACTERS_MAX: Final = 120
TEXT: Final = (ROOT / "ARCHITECTURE.md").read_text()
SECTION: Final = re.compile(r"^(#{2,3} .+)$", re.MULTILINE)
STEP: Final = re.compile(r"^\d+\. `(\w[\w/]+\.py)`: ((?:`\w+`,? ?)+)\.", re.MULTILINE)
NUMBERED: Final = re.compile(r"^\d+\. ", re.MULTILINE)
FUNCTION: Final = re.compile(r"`(\w+)`")
CLASS: Final = re.compile(r"`([A-Z][a-z]\w*)(?:\.(\w+))?`")


def steps(section: str) -> list[tuple[str, list[str]]]:
    """Return the file and the functions of each step."""
    joined = re.sub(r"\n +", " ", section)
    found = [(path, FUNCTION.findall(named)) for path, named in STEP.findall(joined)]
    assert len(found) == len(NUMBERED.findall(joined)), "a step is `N. file: functions. Text`"
    return found


def stories() -> dict[str, list[tuple[str, list[str]]]]:
    """Return the steps of each section that has steps."""
    parts = SECTION.split(TEXT)
    found = {title: steps(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {title: each for title, each in found.items() if each}


STORIES: Final = stories()


def test_the_stories_are_read() -> None:
    assert {"## One append", "## One read", "## One Produce", "## One Fetch"} <= STORIES.keys()


@pytest.mark.parametrize("title", STORIES)
def test_every_step_names_functions_of_its_file(title: str) -> None:
    missing = [
        f"{path}: {name}"
        for path, names in STORIES[title]
        for name in names
        if not re.search(rf"\bdef {name}\(", PRODUCT[path].text)
    ]
    assert missing == []


@pytest.mark.parametrize("title", STORIES)
def test_a_story_has_few_files(title: str) -> None:
    assert len({path for path, _ in STORIES[title]}) <= STORY_FILES_MAX


def test_every_named_class_and_method_exists() -> None:
    code = "\n".join(source.text for source in PRODUCT.values())
    missing = [
        f"{name}.{method}" if method else name
        for name, method in CLASS.findall(TEXT)
        if not re.search(rf"^class {name}\b", code, re.MULTILINE)
        or (method and f"def {method}(" not in code)
    ]
    assert missing == []


def test_every_file_named_beside_another_exists() -> None:
    names = {PurePosixPath(path).name for path in PRODUCT}
    assert [name for name in re.findall(r"`(\w+\.py)`", TEXT) if name not in names] == []


def test_lines_are_short() -> None:
    long = [line for line in TEXT.splitlines() if len(line) > LINE_CHARACTERS_MAX]
    assert [line for line in long if not line.startswith(("|", " "))] == []
