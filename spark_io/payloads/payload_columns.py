"""Columns that are parsed from payloads: their names and types, checked.

Leaves parsing to `parsing`. Options are given by a query, and columns by a query or by a table.

Format of the options: `payloadFormat` json or csv; `payloadSchema` the columns as DDL;
`columnNameOfCorruptRecord` the name of a string column that has the text of a payload that cannot
be parsed. Without `payloadSchema` the columns are those of the table or of `.schema(...)`.

Invariants: the types are those of TYPES, in JSON also arrays and structs of them without dates
and times; each column may be null.

Source: Spark design, "Reading".
"""

import re
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from spark_io.common_options import OptionReader
from spark_io.errors import OptionError, SchemaError
from spark_io.ledgers.options import (
    CORRUPT_COLUMN,
    INCLUDE_LINK,
    INCLUDE_VALUE,
    PAYLOAD_FORMAT,
    PAYLOAD_SCHEMA,
)

JSON: Final = "json"
CSV: Final = "csv"
CORRUPT_COLUMN_NAME: Final = "_corrupt_record"
COLUMNS_MAX: Final = 1_000
NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)
NESTABLE: Final = (StringType, BooleanType, *NUMBERS)
TYPES: Final = (*NESTABLE, DateType, TimestampType)


@dataclass(frozen=True)
class PayloadColumns:
    """Columns of payloads in one format."""

    form: str
    schema: StructType
    corrupt_column: str
    """Name of the column for payloads that cannot be parsed; the columns may be without it."""

    @property
    def has_corrupt_column(self) -> bool:
        """Whether payloads that cannot be parsed have a column."""
        return self.corrupt_column in self.schema.fieldNames()

    @property
    def parsed_names(self) -> list[str]:
        """Names of the columns that are in a payload."""
        return [name for name in self.schema.fieldNames() if name != self.corrupt_column]


def payload_columns(given: OptionReader, schema: StructType) -> PayloadColumns | None:
    """Return the columns of the payloads; None if they are not parsed. `schema` is what the query
    or the table gives. Raises OptionError, SchemaError.
    """
    form = format_of(given)
    if form is None:
        return None
    found = PayloadColumns(form, schema, given.text(CORRUPT_COLUMN) or CORRUPT_COLUMN_NAME)
    _check(found)
    return found


def declared_columns(given: OptionReader) -> str | None:
    """Return the columns as DDL, with one for payloads that cannot be parsed; None if payloads are
    not parsed. Raises OptionError.
    """
    if format_of(given) is None:
        return None
    text = given.text(PAYLOAD_SCHEMA)
    if not text:
        why = 'missing: give the columns as DDL, such as "id bigint, level string"'
        raise OptionError(PAYLOAD_SCHEMA, why)
    corrupt = given.text(CORRUPT_COLUMN) or CORRUPT_COLUMN_NAME
    is_named = re.search(rf"(?<!\w){re.escape(corrupt)}(?!\w)", text) is not None
    return text if is_named else f"{text}, `{corrupt}` string"


def format_of(given: OptionReader) -> str | None:
    """Return the format of the payloads; None if they are not parsed. Raises OptionError."""
    form = (given.text(PAYLOAD_FORMAT) or "").lower()
    if not form:
        for name in (PAYLOAD_SCHEMA, CORRUPT_COLUMN):
            if given.text(name) is not None:
                raise OptionError(name, f"needs {PAYLOAD_FORMAT}=json or {PAYLOAD_FORMAT}=csv")
        return None
    if form not in (JSON, CSV):
        raise OptionError(PAYLOAD_FORMAT, f"{form!r} is neither {JSON} nor {CSV}")
    if not given.truth(INCLUDE_VALUE, default=True):
        raise OptionError(PAYLOAD_FORMAT, "needs the payloads: leave out includeValue=false")
    if given.truth(INCLUDE_LINK, default=False):
        raise OptionError(INCLUDE_LINK, f"the columns are those of payloads: omit {PAYLOAD_FORMAT}")
    return form


def _check(columns: PayloadColumns) -> None:
    names = columns.schema.fieldNames()
    if not columns.parsed_names:
        raise SchemaError("no column is parsed from payloads: name at least one")
    if len(names) > COLUMNS_MAX or len(set(names)) < len(names):
        raise SchemaError(f"give at most {COLUMNS_MAX} columns, each with another name: {names}")
    for field in columns.schema.fields:
        kind = field.dataType
        if field.name == columns.corrupt_column and not isinstance(kind, StringType):
            raise SchemaError(
                f"column {field.name!r} has payloads that cannot be parsed: its type is string"
            )
        if not field.nullable:
            raise SchemaError(
                f"column {field.name!r} is NOT NULL: a payload may be without it, so remove that"
            )
        if not (isinstance(kind, TYPES) or (columns.form == JSON and _is_nested(kind))):
            raise SchemaError(
                f"column {field.name!r}: {kind.simpleString()} cannot be parsed from "
                f"{columns.form}. Use string, boolean, tinyint, smallint, int, bigint, float, "
                "double, date or timestamp; in JSON also array and struct of "
                "these without date and timestamp"
            )


def _is_nested(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _is_nested(kind.elementType)
        case StructType():
            return all(_is_nested(field.dataType) for field in kind.fields)
        case _:
            return isinstance(kind, NESTABLE)
