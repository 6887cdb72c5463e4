"""Comparison of the columns of a DataFrame with those of a data source.

Leaves the columns themselves to `ledgers.rows` and `topics.topic_rows`.
"""

from typing import TYPE_CHECKING

from spark_io.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def describe_columns(schema: "StructType") -> str:
    """Return the names and types of columns, in the form of DDL."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def require_columns(what: str, wanted: str, schema: "StructType") -> None:
    """Raise SchemaError if a query gave columns other than those of the source."""
    found = describe_columns(schema)
    if found != wanted:
        raise SchemaError(
            f"the columns of {what} are {wanted!r}; the given schema is {found!r}: leave it "
            "out, and select or cast afterwards"
        )
