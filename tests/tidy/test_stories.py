"""ARCHITECTURE.md follows calls through the code: what its stories name exists where they say.

A name in backticks in a step is defined in the step's file, in a file that its text names, or in a
file of another step of the story. Outside of steps it is defined anywhere in the product.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import pytest

from tests.tidy.test_tidy import PRODUCT, ROOT

STORY_FILES_MAX: Final = 12
LINE_CHARACTERS_MAX: Final = 120
TEXT: Final = (ROOT / "ARCHITECTURE.md").read_text()
SECTION: Final = re.compile(r"^(#{2,3} .+)$", re.MULTILINE)
STEP: Final = re.compile(r"^\d+\. `(\w[\w/]+\.py)`: ((?:`\w+`,? ?)+)\.(.*)", re.MULTILINE)
NUMBERED: Final = re.compile(r"^\d+\. .*", re.MULTILINE)
FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED: Final = re.compile(r"`([^`]+)`")
FUNCTION: Final = re.compile(r"`(\w+)`")
NAME: Final = re.compile(r"(?:(\w+)\.)?(\w+)(?:\(\))?")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its file, the functions that it names first, and its text."""

    path: str
    functions: list[str]
    text: str

    def files(self) -> list[str]:
        """Return its file, and those that its text names by path or by name."""
        words = QUOTED.findall(self.text)
        folders = [str(PurePosixPath(self.path).parent), *(w.rstrip("/") for w in words)]
        named = [f"{folder}/{word}" for word in words for folder in folders]
        return [self.path, *(path for path in [*words, *named] if path in PRODUCT)]


@dataclass(frozen=True, slots=True)
class Story:
    """The steps of one section, and its other text."""

    steps: list[Step]
    rest: str


def story_of(section: str) -> Story:
    """Parse one section."""
    joined = re.sub(r"\n +", " ", FENCED.sub("", section))
    steps = [Step(path, FUNCTION.findall(head), text) for path, head, text in STEP.findall(joined)]
    assert len(steps) == len(NUMBERED.findall(joined)), "a step is `N. file: functions. Text`"
    return Story(steps, NUMBERED.sub("", joined))


def stories() -> dict[str, Story]:
    """Return the sections that have steps."""
    parts = SECTION.split(TEXT)
    found = {title: story_of(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {title: story for title, story in found.items() if story.steps}


@cache
def names_in(path: str) -> frozenset[str]:
    """Return what a module defines: functions, classes, parameters, attributes, variables."""
    return frozenset(_names(PRODUCT[path].nodes))


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


@cache
def members() -> dict[str, frozenset[str]]:
    """Return what each class defines, and its base classes; classes of one name are joined."""
    found: dict[str, frozenset[str]] = {}
    for source in PRODUCT.values():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                bases = frozenset(base.id for base in node.bases if isinstance(base, ast.Name))
                own = frozenset(_names(ast.walk(node)))
                found[node.name] = found.get(node.name, frozenset()) | own | bases
    return found


STORIES: Final = stories()


def has_member(owner: str, name: str) -> bool:
    """Return whether a class, or a class that it inherits from, defines a name."""
    own = members().get(owner, frozenset())
    bases = [each for each in own if each in members() and each != owner]
    return name in own or any(has_member(base, name) for base in bases)


def unknown(text: str, known: frozenset[str]) -> list[str]:
    """Return the names in backticks in a text that are neither known nor members of a class."""
    found = []
    for word in QUOTED.findall(text):
        match = NAME.fullmatch(word)
        if match is None or word.endswith(".py"):
            continue  # a path, a command or a setting
        owner, name = match.groups()
        is_member = owner is not None and owner[0].isupper() and has_member(owner, name)
        is_class = owner is None and name in members()
        if not (is_member or is_class or ({owner, name} - {None}) <= known):
            found.append(word)
    return found


def missing_files(text: str, folders: Iterable[str]) -> list[str]:
    """Return the files and folders in backticks that do not exist."""
    files = [word for word in QUOTED.findall(text) if word.endswith((".py", "/"))]
    places = ["", *(f"{folder}/" for folder in folders)]
    return [file for file in files if not any((ROOT / place / file).exists() for place in places)]


def test_the_stories_are_read() -> None:
    assert {"## One append", "## One read", "## One Produce", "## One Fetch"} <= STORIES.keys()


@pytest.mark.parametrize("title", STORIES)
def test_every_step_names_functions_of_its_file(title: str) -> None:
    missing = [
        f"{step.path}: {name}"
        for step in STORIES[title].steps
        for name in step.functions
        if not re.search(rf"\bdef {name}\(", PRODUCT[step.path].text)
    ]
    assert missing == []


@pytest.mark.parametrize("title", STORIES)
def test_every_name_in_a_step_is_defined_in_a_file_that_the_story_names(title: str) -> None:
    story = STORIES[title]
    of_heads = frozenset(name for step in story.steps for name in step.functions)
    missing = [
        f"{number}. {word}"
        for number, step in enumerate(story.steps, 1)
        for word in unknown(step.text, of_heads.union(*(names_in(path) for path in step.files())))
    ]
    assert missing == []


@pytest.mark.parametrize("title", STORIES)
def test_every_file_in_a_step_exists_at_its_path_or_beside_the_file_of_the_step(title: str) -> None:
    missing = [
        f"{number}. {file}"
        for number, step in enumerate(STORIES[title].steps, 1)
        for file in missing_files(
            step.text,
            [str(PurePosixPath(path).parent) for path in step.files()],
        )
    ]
    assert missing == []


@pytest.mark.parametrize("title", STORIES)
def test_the_text_between_steps_names_what_exists(title: str) -> None:
    rest = STORIES[title].rest
    every_name = frozenset[str]().union(*map(names_in, PRODUCT))
    assert unknown(rest, every_name) + missing_files(rest, ()) == []


@pytest.mark.parametrize("title", STORIES)
def test_a_story_has_few_files(title: str) -> None:
    assert len({step.path for step in STORIES[title].steps}) <= STORY_FILES_MAX


def test_every_class_and_method_named_elsewhere_exists() -> None:
    named = re.findall(r"`([A-Z][a-z]\w*(?:\.\w+)?)`", TEXT)
    assert unknown(" ".join(f"`{each}`" for each in named), frozenset()) == []


def test_a_wrong_name_is_found() -> None:
    text = "`AppendShell.on_add_answered`, `AppendShell.missing`, `Missing`, `build`, `missing()`"
    assert unknown(text, frozenset({"build"})) == ["AppendShell.missing", "Missing", "missing()"]
    assert missing_files("`acks.py`, `missing.py`", ["ledger_client/protocol"]) == ["missing.py"]


def test_every_file_named_beside_another_exists() -> None:
    names = {PurePosixPath(path).name for path in PRODUCT}
    assert [name for name in re.findall(r"`(\w+\.py)`", TEXT) if name not in names] == []


def test_lines_are_short() -> None:
    long = [line for line in TEXT.splitlines() if len(line) > LINE_CHARACTERS_MAX]
    assert [line for line in long if not line.startswith(("|", " "))] == []
