"""Options of servers that `quire up` passes on, from environment variables and from its flags.

Leaves the lists of options to `bookie.options`, `broker_layer.options` and `quire.console.options`,
and passing them to the processes to `quire.local`.

Invariant: an option that is unknown, invalid or chosen by `quire up` itself is refused before
anything starts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from quire.errors import UsageError
from quire.server.errors import OptionError
from quire.server.option_reading import Value, known_name

TRY_NEXT: Final = "quire up --help"
OWN_BOOKIE_OPTIONS: Final = ("data_dir", "metadata", "die_with_parent")
OWN_CONSOLE_OPTIONS: Final = ("metadata", "port", "die_with_parent")
OWN_BROKER_OPTIONS: Final = ("broker_id", "metadata", "listeners", "die_with_parent")

Load = Callable[[str | None, Mapping[str, str], Mapping[str, Value]], object]


def bookie_options(words: Iterable[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the options for each bookie by name. Raises UsageError."""
    from bookie.options import OPTIONS, VARIABLE_PREFIX, load_options

    flags = {"data_dir": "chosen by quire up"}
    given = _given(VARIABLE_PREFIX, OPTIONS, OWN_BOOKIE_OPTIONS, words, variables)
    return _checked(load_options, VARIABLE_PREFIX, given, flags)


def broker_options(words: Iterable[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the options for each broker by name. Raises UsageError."""
    from broker_layer.options import OPTIONS, VARIABLE_PREFIX, load_options

    given = _given(VARIABLE_PREFIX, OPTIONS, OWN_BROKER_OPTIONS, words, variables)
    return _checked(load_options, VARIABLE_PREFIX, given, {})


def console_options(words: Iterable[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the console by name. Raises UsageError."""
    from quire.console.options import OPTIONS, VARIABLE_PREFIX, load_options

    given = _given(VARIABLE_PREFIX, OPTIONS, OWN_CONSOLE_OPTIONS, words, variables)
    return _checked(load_options, VARIABLE_PREFIX, given, {})


def _given(
    prefix: str,
    known: Collection[str],
    own: Collection[str],
    words: Iterable[str],
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Return the options in `variables` and in `words` (NAME=VALUE); the words override."""
    given = {
        name.removeprefix(prefix).lower(): value
        for name, value in variables.items()
        if name.startswith(prefix)
    }
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise UsageError(f"{word} is not NAME=VALUE", try_next=TRY_NEXT)
        try:
            given[known_name(name.replace("-", "_"), list(known), "option")] = value
        except OptionError as error:
            raise UsageError(str(error), try_next=TRY_NEXT) from error
    for name in own:
        if name in given:
            text = f"{name} cannot be given: quire up chooses it for each server"
            raise UsageError(text, try_next=TRY_NEXT)
    return given


def _checked(
    load: Load, prefix: str, given: dict[str, str], flags: Mapping[str, Value]
) -> dict[str, str]:
    try:
        load(None, {prefix + name.upper(): value for name, value in given.items()}, flags)
    except OptionError as error:
        raise UsageError(str(error), try_next=TRY_NEXT) from error
    return given
