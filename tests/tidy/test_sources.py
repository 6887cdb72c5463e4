"""The `Source:` of each module resolves: a rule, a section of a document, a decision, or a known
kind of outside source.

A source is a list of citations separated by semicolons, up to the end of its first sentence. A
citation of a document may name sections in quotes; what follows in words is for the reader.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.test_links import HEADING, prose
from tests.tidy.test_tidy import MODULES, ROOT

SOURCE: Final = re.compile(r"^Source: *(.*?)(?=\n *\n|\Z)", re.MULTILINE | re.DOTALL)
QUOTED: Final = re.compile(r'"([^"]+)"')
NUMBER: Final = re.compile(r"(?<![\w.])(\d{1,2}(?:\.\d{1,2})?)(?![\w.]*\d)")
DESIGNS: Final = ("api", "assurance", "metadata", "reliability", "Spark", "storage", "topics")
DESIGN: Final = re.compile(rf"({'|'.join(DESIGNS)}) design\b(.*)")
DOCUMENT: Final = re.compile(r"((?:docs/[\w./-]+|CONTRIBUTING|ARCHITECTURE)\.md)\b(.*)")
RULES: Final = re.compile(r"(?:protocol,? )?(?:rules?|sections?) (.*)")
FAULT: Final = re.compile(r"\b([A-Z]\d{1,2})\b")
OUTSIDE: Final = {
    "proposal or issue of Kafka": r"KIP-\d+|KAFKA-\d+",
    "Kafka's protocol, configs and behaviour": r"(?:[\w ,]+ )?Kafka(?:'s)? ",
    "scripts and tools of Kafka": r"bin/[\w.-]+|the lines that the tools of Kafka|which topics",
    "settings of Kafka": r"settings that are not named here|what Kafka",
    "standard of the internet": r"RFC \d+",
    "issue or script of BookKeeper": r"BookKeeper(?: #\d+|'s )|PR #\d+",
    "ZooKeeper and its client": r"ZooKeeper(?: \d|'s )|kazoo ",
    "vulnerability": r"CVE-\d+",
    "standard of the Internet": r"RFC \d{3,4}(?:, section [\d.]+)?",
    "header or manual page of a system": r"linux/|\w+\(\d\)",
    "other projects": r"hdrhistogram\.org|openmessaging/|the LZ4 frame format",
    "definition of Java": r"the definition of Java's",
    "measurement": r"measured: ",
}
"""How a citation of something that is not in this repository begins."""
PROTOCOL: Final = (ROOT / "docs/protocol.md").read_text()
KNOWN_RULES: Final = frozenset(
    re.findall(r"^(\d{1,2}\.\d{1,2}) ", PROTOCOL, re.MULTILINE)
    + re.findall(r"^## (\d{1,2})\. ", PROTOCOL, re.MULTILINE)
)


def sources() -> Iterator[tuple[str, str]]:
    """Yield (path, source) of every module that has one."""
    for path, source in MODULES.items():
        found = SOURCE.search(ast.get_docstring(source.tree) or "")
        if found:
            yield path, " ".join(found[1].split()).removesuffix(".")


def citations(source: str) -> list[str]:
    """Cut the first sentence of a source at the semicolons outside of brackets."""
    first = re.split(r"\. (?=[A-Z])", source)[0]
    return [part.strip() for part in re.split(r"; (?![^()]*\))", first)]


def wrong_with(citation: str) -> str:
    """Return why a citation does not resolve; empty when it does."""
    if design := DESIGN.match(citation):
        return _missing(f"docs/design/{design[1].lower()}.md", design[2])
    if document := DOCUMENT.match(citation):
        return _missing(document[1], document[2])
    if citation.startswith("decision"):
        return _missing_decision(citation)
    if citation.startswith("protocol, "):
        return _missing("docs/protocol.md", citation)
    if rules := RULES.match(citation):
        unknown = [number for number in NUMBER.findall(rules[1]) if number not in KNOWN_RULES]
        return f"no rule {', '.join(unknown)}" if unknown else ""
    if citation.startswith("invariant"):
        text = " ".join(PROTOCOL.replace('"', "").lower().split())
        quoted = [each for each in QUOTED.findall(citation) if each.lower() not in text]
        return f"the protocol has no invariant {', '.join(quoted)}" if quoted else ""
    if named := re.match(r"`([\w./]+/[\w./]+)`", citation):
        return "" if (ROOT / named[1]).exists() else f"no file {named[1]}"
    if re.match(r"`[\w.]+`", citation):
        return ""
    known = any(re.match(pattern, citation) for pattern in OUTSIDE.values())
    return "" if known else "no known kind of source"


def _missing(path: str, text: str) -> str:
    if not (ROOT / path).exists():
        return f"no document {path}"
    headings = HEADING.findall(prose(path))
    words = QUOTED.findall(text)
    wrong = [word for word in words if not any(found.startswith(word) for found in headings)]
    if path.endswith("reliability.md"):
        wrong += [each for each in FAULT.findall(text) if f"| {each} |" not in prose(path)]
    return f"{path} has no {', '.join(map(repr, wrong))}" if wrong else ""


def _missing_decision(citation: str) -> str:
    numbers = re.findall(r"\d{4}", citation)
    folder = ROOT / "docs" / "decisions"
    unknown = [number for number in numbers if not list(Path(folder).glob(f"{number}-*.md"))]
    return f"no decision {', '.join(unknown) or citation}" if unknown or not numbers else ""


def test_every_source_resolves() -> None:
    wrong = [
        f"{path}: {citation!r}: {why}"
        for path, source in sources()
        for citation in citations(source)
        if (why := wrong_with(citation))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "citation",
    [
        "protocol rules 99.1 and 3.1",
        'storage design, "No such section"',
        "reliability design, D99",
        "decision 9999",
        'invariant "nothing is ever wrong"',
        "`bookie/no_such_module.py`",
        "docs/no-such-page.md",
        "a conversation",
    ],
)
def test_what_does_not_exist_is_reported(citation: str) -> None:
    assert wrong_with(citation)


def test_citations_are_cut_at_semicolons() -> None:
    assert citations('protocol rule 3.1; KIP-98 (a; b), "c"') == [
        "protocol rule 3.1",
        'KIP-98 (a; b), "c"',
    ]
