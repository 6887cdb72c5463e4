"""Page of what is stored in the metadata service: every kind of node, and every record.

Leaves the facts to the register (`metadata.paths`) and to the records themselves.
"""

import ast
import inspect
import textwrap
from typing import Any, Final

from metadata.paths import REGISTER, Right
from metadata.records import Codec
from tests.reference.markdown import code, first_sentence, page, prose, table
from tests.support.metadata.stored_codecs import stored_codecs

INTRODUCTION: Final = """\
What the cluster agrees on is in ZooKeeper, below the path of the metadata URI. A value is a
msgpack array: its first field is a format version, 1, and the others are those of
[its record](#records), in their order. A record in another one is an array without a version. Any
other bytes, and a newer version, are refused with `MetadataFormatError` and not changed. Servers
have all rights on all nodes; a path that is not in the table is for servers alone. `quire metadata
secure` sets these rights. A dump leaves out ephemeral nodes too."""


def metadata_page() -> str:
    """Return the page."""
    titles = ("path", "value", "written by", "kept until", "clients may", "in a dump")
    nodes = table(
        titles,
        (
            (
                code(kind.root + kind.below),
                prose(kind.holds),
                prose(kind.written_by),
                prose(kind.kept_until),
                _rights(kind.clients),
                "yes" if kind.is_dumped else "",
            )
            for kind in REGISTER
        ),
    )
    codecs = stored_codecs()
    records = {codec.record: codec for codec in codecs.values() if codec.record is not None}
    classes = sorted(records, key=lambda record: record.__name__)
    return page(
        "Metadata",
        INTRODUCTION,
        [
            f"## Nodes\n\n{nodes}",
            f"## Single values\n\n{_single_values(codecs)}",
            "## Records",
            *(_record(record, records[record]) for record in classes),
        ],
    )


def _rights(rights: Right) -> str:
    return ", ".join(right.name.lower() for right in rights if right.name) or "nothing"


def _single_values(codecs: dict[str, Codec[Any]]) -> str:
    rows = [
        (code(name), prose(form.shown), f"`{codec_name}`")
        for codec_name, codec in sorted(codecs.items())
        if codec.record is None
        for name, form in codec.forms.items()
    ]
    return table(("field", "type", "codec"), rows)


def _record(record: type, codec: Codec[Any]) -> str:
    docstrings = _field_docstrings(record)
    rows = [
        (str(index), code(name), prose(form.shown), prose(docstrings.get(name, "")))
        for index, (name, form) in enumerate(codec.forms.items(), start=1)
    ]
    return f"### {record.__name__}\n\n{prose(first_sentence(record.__doc__))}\n\n" + table(
        ("index", "field", "type", "meaning"), rows
    )


def _field_docstrings(record: type) -> dict[str, str]:
    """Return the text below each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                found[name] = value
            case _:
                pass
    return found
