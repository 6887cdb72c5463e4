"""Codecs of all stored records, found in the modules of `metadata`, and a record of each.

A record is made from the types of its fields, so a new codec needs nothing here.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import metadata
from metadata.ids import BookieId, EntryId, LedgerId, UpdateToken
from metadata.records import Codec, Form, Sized, Whole
from metadata.repair.jobs import JobName
from metadata.security.acls import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from metadata.security.audit_trail import AuditRecord
from metadata.security.ledger_grants import GrantRecord, grants_of
from metadata.security.ledger_roles import LedgerGrant, LedgerRole, parse_resource
from metadata.security.quotas import QuotaEntity, QuotaKey, QuotaValues, entity_of
from metadata.security.rights_record import NodeRights
from metadata.topics.partition import PartitionSegment
from metadata.topics.topic import TopicId
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism

_SAMPLES: Final[Mapping[Any, object]] = {
    str: "text",
    bytes: bytes(16),
    bool: True,
    float: 0.5,
    BookieId: BookieId("bookie-a"),
    LedgerId: LedgerId(7),
    EntryId: EntryId(3),
    UpdateToken: UpdateToken(bytes(16)),
    JobName: JobName(1, 100, LedgerId(7)),
    QuotaEntity: entity_of([("user", "alice")]),
    QuotaValues: {QuotaKey.PRODUCER_BYTE_RATE: 5.0},
    ScramCredential: ScramCredential(ScramMechanism.SHA_256, bytes(16), bytes(32), bytes(32), 4096),
    GrantRecord: grants_of(
        "User:alice", [LedgerGrant(LedgerRole.READER, parse_resource("ledger:7"))]
    ),
    TopicId: TopicId(bytes(16)),
    Mapping[str, str]: {"name": "value"},
    tuple[int, int]: (1, 2),
    NodeRights: NodeRights(("x509:CN=a",), ("x509:CN=b",)),
}
_OTHERS: Final[tuple[object, ...]] = (
    "User:alice",
    (
        AclBinding(
            ResourceType.TOPIC,
            PatternType.LITERAL,
            "t",
            "User:a",
            "*",
            Operation.READ,
            Permission.ALLOW,
        ),
    ),
    (AuditRecord(5, "who", "host", "act", "arguments", "result"),),
    (PartitionSegment(LedgerId(7), 0, 1, 5, 9, 100, 6),),
    {"lost_after_s": 600, "of_a_later_release": ["a"]},
    {},
)
"""Values of single fields whose types do not say enough."""


def stored_codecs() -> dict[str, Codec[Any]]:
    """Return the codec of each stored record, by its name in its module."""
    found: dict[str, Codec[Any]] = {}
    for module in pkgutil.walk_packages(metadata.__path__, "metadata."):
        for name, each in vars(importlib.import_module(module.name)).items():
            if isinstance(each, Codec):
                found.setdefault(name, each)
    return found


def given_to(codec: Codec[Any], record: object) -> dict[str, object]:
    """Return the fields of a record that are not stored."""
    return {name: getattr(record, name) for name in codec.not_stored}


def sample_of(codec: Codec[Any]) -> object:
    """Return a record that the codec stores."""
    if codec.record is not None:
        return _SAMPLES.get(codec.record) or _of_class(codec.record)
    (form,) = codec.forms.values()
    return _of_form(form, tuple(_SAMPLES.values()))


def _of_class(record: type) -> object:
    hints = get_type_hints(record, include_extras=True)
    if is_dataclass(record):
        hints = {field.name: hints[field.name] for field in fields(record)}
    return record(**{name: _of_hint(hint) for name, hint in hints.items()})


def _of_hint(hint: Any) -> object:
    if get_origin(hint) is Annotated:
        base, *marks = get_args(hint)
        forms = [mark for mark in marks if isinstance(mark, Form)]
        return _of_form(forms[0], (_of_hint(base),)) if forms else _of_hint(base)
    if hint in _SAMPLES:
        return _SAMPLES[hint]
    arguments = get_args(hint)
    if arguments[1:] == (NoneType,):
        return _of_hint(arguments[0])
    if arguments[1:] == (Ellipsis,):
        return (_of_hint(arguments[0]),)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return _of_class(hint)


def _of_form(form: Form[Any], samples: tuple[object, ...]) -> object:
    """Return a value that the form reads."""
    if isinstance(form, Whole):
        return min(form.high, form.low + 5)
    if isinstance(form, Sized):
        return bytes(form.size)
    for sample in (*samples, *_OTHERS):
        try:
            if form.unpack(form.pack(sample)) == sample:
                return sample
        except (ValueError, TypeError, AttributeError):
            continue
    raise AssertionError(f"no sample is a {form.shown}: add one")
