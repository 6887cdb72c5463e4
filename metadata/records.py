"""Records: dataclasses whose fields say how they are stored, as a versioned msgpack array.

A field is stored by its type: text, bytes, bool, float, an enum by its value, an optional one as
nil, a tuple of many as an array, another record as an array of its fields. `Annotated` adds what
the type does not say: the limits of a number, the form of an id, or that the field is not stored.

    @dataclass(frozen=True, slots=True)
    class Listener:
        name: str
        host: str
        port: Annotated[int, whole(1, 65_535)]

Leaves where a record is stored to `metadata.store.records`, and checks of msgpack's types to
`metadata.msgpack_fields`.

Format: [1, field, ...] in the order of the dataclass.

Invariants: what is packed can be unpacked, else it is refused; for any bytes, unpacking returns a
record or raises MetadataFormatError.

Source: docs/decisions/0019-records.md; metadata design.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from metadata.errors import MetadataFormatError
from metadata.ids import (
    ENTRY_ID_MAX,
    LEDGER_ID_MAX,
    UPDATE_TOKEN_BYTES,
    BookieId,
    EntryId,
    LedgerId,
    UpdateToken,
    is_bookie_id,
)
from metadata.msgpack_fields import (
    ITEMS_MAX,
    FieldError,
    Packed,
    array_of,
    bool_of,
    bytes_of,
    float_of,
    int_of,
    map_of,
    pack_checked,
    text_of,
    unpack_versioned,
)

INT64_MAX: Final = 2**63 - 1
NOT_STORED: Final = "not stored"
"""Mark of a field that is not stored: the reader gives its value, or it has its default."""

_FORMAT_VERSION: Final = 1

Value = TypeVar("Value")
Record = TypeVar("Record")
Choice = TypeVar("Choice", bound=Enum)


@dataclass(frozen=True)
class Form(Generic[Value]):
    """How one value is stored. `unpack` raises ValueError."""

    shown: str
    """The form in documents."""
    pack: Callable[[Value], Packed]
    unpack: Callable[[Packed], Value]


@dataclass(frozen=True)
class Whole(Form[int]):
    """The form of an int within bounds. Create it with `whole`."""

    low: int
    high: int


def whole(low: int = 0, high: int = INT64_MAX, unit: str = "") -> Whole:
    """Return the form of an int within `low`..`high`."""

    def unpack(field: Packed) -> int:
        return int_of(field, low, high)

    bounds = "" if (low, high) == (0, INT64_MAX) else f" {low}..{high}"
    shown = f"int{bounds}, {unit}" if unit else f"int{bounds}"
    return Whole(shown, _same, unpack, low, high)


@dataclass(frozen=True)
class Sized(Form[bytes]):
    """The form of bytes of one size. Create it with `sized`."""

    size: int


def sized(size: int) -> Sized:
    """Return the form of bytes of one size."""
    return Sized(f"bin of {size} bytes", _same, partial(bytes_of, size=size), size)


def checked(
    form: Form[Value], check: Callable[[Value], object], shown: str | None = None
) -> Form[Value]:
    """Return a form whose values pass a check, which raises ValueError or returns False."""

    def unpack(field: Packed) -> Value:
        value = form.unpack(field)
        if check(value) is False:
            raise FieldError(f"{value!r} is not {shown}")
        return value

    return Form(shown or form.shown, form.pack, unpack)


def array(form: Form[Value], at_most: int = ITEMS_MAX) -> Form[tuple[Value, ...]]:
    """Return the form of an array of at most so many values."""
    pack_item, unpack_item = form.pack, form.unpack

    def pack(values: Iterable[Any]) -> Packed:
        return list(values) if pack_item is _same else [pack_item(value) for value in values]

    def unpack(field: Packed) -> tuple[Value, ...]:
        fields = array_of(field)
        if len(fields) > at_most:
            raise FieldError(f"it has {len(fields)} items, at most {at_most} are allowed")
        return tuple([unpack_item(item) for item in fields])

    shown = f"array of {form.shown}"
    return Form(shown if at_most == ITEMS_MAX else f"{shown}, at most {at_most}", pack, unpack)


def choice(kind: type[Choice], without: Collection[Choice] = ()) -> Form[Choice]:
    """Return the form of an enum, stored by its value; some of its members may not be stored."""
    values = {member.value: member for member in kind if member not in without}
    is_number = issubclass(kind, IntEnum)
    read = partial(int_of, low=min(values), high=max(values)) if is_number else text_of

    def unpack(field: Packed) -> Choice:
        value = read(field)
        if value not in values:
            raise FieldError(f"{value!r} is none of {', '.join(map(str, values))}")
        return values[value]

    return Form("int" if is_number else ", ".join(values), lambda member: member.value, unpack)


def translated(
    form: Form[Any], pack: Callable[[Value], Any], unpack: Callable[[Any], Value], shown: str = ""
) -> Form[Value]:
    """Return the form of a value that is stored as another one."""
    return Form(
        shown or form.shown,
        lambda value: form.pack(pack(value)),
        lambda field: unpack(form.unpack(field)),
    )


def form_of(hint: Any) -> Form[Any]:
    """Return how values of an annotated type are stored. Raises TypeError for a type that does not
    say it.
    """
    if get_origin(hint) is Annotated:
        return next(form for form in hint.__metadata__ if isinstance(form, Form))
    if hint in _PLAIN:
        return _PLAIN[hint]
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType) and arguments[1:] == (NoneType,):
        return _optional(form_of(arguments[0]))
    if get_origin(hint) is tuple and arguments[1:] == (Ellipsis,):
        return array(form_of(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return choice(hint)
    if isinstance(hint, type) and hasattr(hint, "__annotations__"):
        return row_of(hint)
    raise TypeError(f"{hint!r} does not say how it is stored")


@dataclass(frozen=True)
class Codec(Generic[Record]):
    """Bytes of the records of one class, or of single values that are stored alike. Create it with
    `codec_of` or `codec_of_one`.
    """

    record: type[Record] | None
    """The class; None for single values."""
    forms: Mapping[str, Form[Any]]
    """The stored fields, in their order."""
    not_stored: tuple[str, ...]
    pack_fields: Callable[[Record], list[Packed]]
    unpack_fields: Callable[[list[Packed], Mapping[str, object]], Record]

    def pack(self, what: str, record: Record) -> bytes:
        """Return the stored form. Raises MetadataFormatError for a record that could not be read:
        stored, it would stop all that read it.
        """
        fields: list[Packed] = [_FORMAT_VERSION, *self.pack_fields(record)]
        given = {name: getattr(record, name) for name in self.not_stored}
        return pack_checked(what, fields, lambda value: self.unpack(what, value, **given))

    def unpack(self, what: str, value: bytes, **given: object) -> Record:
        """Read a stored form; `given` has the values of fields that are not stored. Raises
        MetadataFormatError for anything else.
        """
        fields = unpack_versioned(what, value, _FORMAT_VERSION, 1 + len(self.forms))
        try:
            return self.unpack_fields(fields[1:], given)
        except ValueError as error:
            raise MetadataFormatError(what, str(error)) from error


def codec_of(
    record: type[Record], check: Callable[[Record], object] | None = None
) -> Codec[Record]:
    """Return the codec of a class. `check` raises ValueError for a record that cannot be stored."""
    hints = get_type_hints(record, include_extras=True)
    not_stored = tuple(name for name in hints if not _is_stored(hints[name]))
    forms = {name: form_of(hint) for name, hint in hints.items() if name not in not_stored}
    names = tuple(forms)
    are_first = names == tuple(hints)[: len(names)]
    converted = [
        (index, form.pack) for index, form in enumerate(forms.values()) if form.pack is not _same
    ]
    readers = [form.unpack for form in forms.values()]

    def pack(value: Record) -> list[Packed]:
        fields: list[Any] = [getattr(value, name) for name in names]
        for index, pack_field in converted:
            fields[index] = pack_field(fields[index])
        return fields

    def unpack(fields: list[Packed], given: Mapping[str, object]) -> Record:
        if len(fields) != len(readers):
            raise FieldError(f"it has {len(fields)} fields instead of {len(readers)}")
        values = [read(field) for read, field in zip(readers, fields, strict=True)]
        if are_first:
            value = record(*values, **given)
        else:
            value = record(**dict(zip(names, values, strict=True)), **given)
        if check is not None:
            check(value)
        return value

    return Codec(record, forms, not_stored, pack, unpack)


def codec_of_one(name: str, form: Form[Value]) -> Codec[Value]:
    """Return the codec of a value that is the only field of its record."""
    return Codec(
        None,
        {name: form},
        (),
        lambda value: [form.pack(value)],
        lambda fields, _given: form.unpack(fields[0]),
    )


def row_of(record: type[Record], check: Callable[[Record], object] | None = None) -> Form[Record]:
    """Return the form of a record that is stored in another one, as an array of its fields."""
    codec = codec_of(record, check)
    shown = ", ".join(f"{name} {form.shown}" for name, form in codec.forms.items())
    return Form(
        f"[{shown}]", codec.pack_fields, lambda field: codec.unpack_fields(array_of(field), {})
    )


def _is_stored(hint: Any) -> bool:
    return get_origin(hint) is not Annotated or NOT_STORED not in hint.__metadata__


def _optional(form: Form[Value]) -> Form[Value | None]:
    return Form(
        f"{form.shown}, or nil",
        lambda value: None if value is None else form.pack(value),
        lambda field: None if field is None else form.unpack(field),
    )


def _same(value: Any) -> Any:
    return value


TEXT: Final[Form[str]] = Form("str", _same, text_of)
BYTES: Final[Form[bytes]] = Form("bin", _same, bytes_of)
BOOL: Final[Form[bool]] = Form("bool", _same, bool_of)
FLOAT: Final[Form[float]] = Form("float", _same, float_of)
TABLE: Final[Form[dict[str, Packed]]] = Form("map with str keys", dict, map_of)
BOOKIE_ID: Final = checked(TEXT, is_bookie_id, "the id of a bookie")

_PLAIN: Final[Mapping[Any, Form[Any]]] = {
    str: TEXT,
    bytes: BYTES,
    bool: BOOL,
    float: FLOAT,
    BookieId: BOOKIE_ID,
    LedgerId: whole(0, LEDGER_ID_MAX),
    EntryId: whole(0, ENTRY_ID_MAX),
    UpdateToken: sized(UPDATE_TOKEN_BYTES),
}
"""Types that are stored in one way everywhere."""

Count = Annotated[int, whole()]
Bytes = Annotated[int, whole(unit="bytes")]
Ms = Annotated[int, whole(unit="ms")]
"""A time in ms since 1970."""
Seconds = Annotated[int, whole(unit="s")]
