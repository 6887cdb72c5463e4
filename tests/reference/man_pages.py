"""Manual pages of the command, from the parsers themselves: one of `quire`, and one of each noun.

Format: roff with the macros of man(7). They are kept in docs/man/, because a build of the package
cannot import it, and installed as share/man/man1.
"""

import argparse
from collections.abc import Iterator
from typing import Final

from quire.cli.command_line import VerbParser
from quire.cli.main import FOOTER, NOUNS, parser_of
from tests.reference.command_line import arguments_of, verbs_of

PURPOSE: Final = "replicated ledger store"


def man_pages() -> dict[str, str]:
    """Return the text of each page, by the name of its file."""
    pages = {f"quire-{noun}.1": _page_of_noun(noun) for noun in NOUNS}
    return {"quire.1": _page_of_all(), **pages}


def _page_of_all() -> str:
    lines = [
        *_head("QUIRE", "quire", PURPOSE),
        *_section("SYNOPSIS"),
        ".B quire",
        r"\fINOUN\fR [\fIVERB\fR] ...",
        *_section("COMMANDS"),
    ]
    for noun, (_, summary, _) in NOUNS.items():
        lines += [".TP", rf"\fBquire\-{_text(noun)}\fR(1)", _text(summary)]
    lines += [*_section("DESCRIPTION"), *map(_text, FOOTER.splitlines())]
    return "\n".join([*lines, *_see_also(NOUNS)]) + "\n"


def _page_of_noun(noun: str) -> str:
    summary = NOUNS[noun].summary
    parser = parser_of(noun)
    if isinstance(parser, VerbParser):
        parser.complete()
    lines = [
        *_head(f"QUIRE-{noun.upper()}", f"quire-{noun}", summary),
        *_section("SYNOPSIS"),
        f".B quire {_text(noun)}",
        _synopsis(parser),
        *_section("DESCRIPTION"),
        _text(parser.description or ""),
    ]
    verbs = dict(verbs_of(parser))
    if not verbs:
        lines += [*_section("OPTIONS"), *_options(parser)]
    for name, verb in verbs.items():
        lines += [f'.SH "QUIRE {_text(noun).upper()} {_text(name).upper()}"']
        lines += [_text(verb.description or ""), *_options(verb)]
    return "\n".join([*lines, *_see_also(())]) + "\n"


def _head(title: str, name: str, purpose: str) -> list[str]:
    return [
        f'.TH "{_text(title)}" "1" "" "Quire" "Quire"',
        *_section("NAME"),
        rf"{_text(name)} \- {_text(purpose)}",
    ]


def _section(title: str) -> list[str]:
    return [f'.SH "{title}"']


def _synopsis(parser: argparse.ArgumentParser) -> str:
    return r"\fIVERB\fR ..." if dict(verbs_of(parser)) else r"[\fIOPTION\fR ...]"


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in arguments_of(parser):
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest
        names = ", ".join(rf"\fB{_text(string)}\fR" for string in action.option_strings)
        value = "" if action.nargs == 0 else rf"\fI{_text(metavar)}\fR"
        yield ".TP"
        yield f"{names} {value}".strip()
        yield _text((action.help or "").replace("%%", "%")) or r"\&"


def _see_also(nouns: object) -> list[str]:
    first = ["quire"] if not nouns else [f"quire-{noun}" for noun in NOUNS]
    lines = [rf"\fB{_text(each)}\fR(1)," for each in first]
    return [*_section("SEE ALSO"), *lines[:-1], lines[-1].rstrip(",")]


def _text(text: str) -> str:
    """Return a text as roff prints it: nothing in it is a command."""
    escaped = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    escaped = escaped.replace("'", r"\(aq").replace("`", r"\(ga").replace("^", r"\(ha")
    escaped = escaped.replace("~", r"\(ti").replace('"', r"\(dq")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
