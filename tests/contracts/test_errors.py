"""Every error of every package survives copying and pickling, with its text and its fields.

Errors are pickled by Spark, `multiprocessing` and `concurrent.futures`; an error that cannot be
unpickled ends the pool, and hides what failed.
"""

import copy
import importlib
import inspect
import pickle
import pkgutil
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import pytest

from bookie.errors import Difference
from metadata.ids import EntryId
from metadata.ledgers.lost_entries import LostRange

PACKAGES: Final = (
    "metadata",
    "bookie",
    "ledger_client",
    "broker_layer",
    "spark_io",
    "quire",
)
SAMPLES: Final[dict[type, object]] = {
    str: "bookie-1: connection refused",
    int: 7,
    float: 1.5,
    bool: True,
    LostRange: LostRange(EntryId(3), EntryId(5), 1_700_000_000_000),
    Difference: Difference("instance", "a", "b"),
    BaseException: ValueError("a cause"),
}
COPIES: Final[dict[str, Callable[[Any], Any]]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "old pickle": lambda error: pickle.loads(pickle.dumps(error, protocol=0)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def errors() -> Iterator[type[Exception]]:
    """Yield every public error that the product's modules define."""
    for package in PACKAGES:
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                _import(module.name)
    seen: dict[type[Exception], None] = {}
    queue = [Exception]
    while queue:
        for error in type.__subclasses__(queue.pop()):
            if error not in seen:
                seen[error] = None
                queue.append(error)
    for error in seen:
        is_ours = error.__module__.split(".")[0] in PACKAGES
        if is_ours and not error.__name__.startswith("_"):
            yield error


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("pyarrow", "pyspark"):  # Spark may be missing here
            raise


def sample(wanted: Any) -> object:
    """Return a realistic value of an annotated type."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(wanted, typing.NewType):
        return sample(wanted.__supertype__)
    if origin is typing.Literal:
        return arguments[-1]
    if origin in (typing.Union, types.UnionType):
        return sample(next(argument for argument in arguments if argument is not type(None)))
    if origin is Mapping:
        return {sample(arguments[0]): sample(arguments[1])}
    if origin is Sequence:
        return [sample(arguments[0])]
    if issubclass(wanted, Enum):
        return list(wanted)[-1]
    if issubclass(wanted, tuple):
        return wanted(*(sample(hint) for hint in typing.get_type_hints(wanted).values()))
    if issubclass(wanted, Exception):
        return wanted("what a library reported")
    return SAMPLES[wanted]


def made(error: type[Exception]) -> Exception:
    """Return an instance with a value for every parameter, and with all that callers add."""
    parameters = inspect.signature(error.__init__).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        instance = error("what failed, why, and the next step")
    else:
        hints = typing.get_type_hints(error.__init__)
        named = [parameter for parameter in parameters if parameter.name != "self"]
        values = {parameter.name: sample(hints[parameter.name]) for parameter in named}
        positional = [values[p.name] for p in named if p.kind is p.POSITIONAL_OR_KEYWORD]
        keywords = {p.name: values[p.name] for p in named if p.kind is p.KEYWORD_ONLY}
        instance = error(*positional, **keywords)
    instance.add_note("a note")
    return instance


ERRORS: Final = sorted(errors(), key=lambda each: (each.__module__, each.__name__))


def test_the_errors_are_found() -> None:
    assert len(ERRORS) > 80
    roots = {error.__module__.split(".")[0] for error in ERRORS}
    assert roots == {*PACKAGES}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_an_error_survives(error: type[Exception], way: str) -> None:
    original = made(error)
    again = COPIES[way](original)
    assert type(again) is error
    assert again is not original
    assert str(again) == str(original)
    assert again.args == original.args or repr(again.args) == repr(original.args)
    assert repr(again.__dict__) == repr(original.__dict__)
