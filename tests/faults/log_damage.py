"""Damage to one file of a storage's directory, and the facts that must survive it.

Leaves making the directory to `torn_states`, and requests for these facts to `examining`.

Knowledge of a storage: a record that names a synced LSN proves that everything below was durable,
and so does the index's mark. Damage at or above the highest such place cannot be distinguished from
a group that was never synced, and is cut. Damage below it is never cut, and never answered as "no
such entry". The limit is computed here from the undamaged records, not by the tested code.
Source: protocol rule 2.4; storage design, "One log".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from bookie.log import records
from bookie.log.records import RECORD_HEADER_BYTES, RecordKind
from bookie.log.segments import parse_name
from bookie.wire.batch import parse_header
from tests.faults.promises import Promised, Promises
from tests.support.bookie.lmdb_pages import branch_keys

LOG: Final = "log/"
INDEX: Final = "index/data.mdb"
SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4_096
FLIPS_MAX: Final = 4
_BATCH_HEADER_BYTES: Final = 48


@dataclass(frozen=True, slots=True)
class Item:
    """One undamaged record, and its place."""

    name: str
    offset: int
    size: int
    lsn: int
    synced_lsn: int
    kind: RecordKind
    is_cleaned: bool
    ledger_id: int = -1
    entries: range = range(0)


@dataclass(frozen=True, slots=True)
class Template:
    """Directory that a killed process left, with its promises."""

    directory: Path
    files: dict[str, bytes]
    items: tuple[Item, ...]
    mark_lsn: int
    promises: Promises

    @property
    def tail_lsn(self) -> int:
        """Start of the last group, which was written and never synced."""
        return max(item.synced_lsn for item in self.items if not item.is_cleaned)


@dataclass(frozen=True, slots=True)
class Damage:
    """New contents of one file; None: it is removed."""

    kind: str
    name: str
    data: bytes | None

    def apply(self, directory: Path) -> None:
        """Apply the damage."""
        path = directory / self.name
        if self.data is None:
            path.unlink()
        else:
            path.write_bytes(self.data)


def load(directory: Path, mark_lsn: int, promises: Promises) -> Template:
    """Read an undamaged directory."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    files = {str(path.relative_to(directory)): path.read_bytes() for path in sorted(paths)}
    items = tuple(item for name in files if name.startswith(LOG) for item in _items(name, files))
    return Template(directory, files, items, mark_lsn, promises)


def _items(name: str, files: dict[str, bytes]) -> list[Item]:
    parsed = parse_name(name.removeprefix(LOG))
    if parsed is None:
        return []
    number, is_cleaned = parsed
    data, offset, found = files[name], 0, list[Item]()
    while header := records.decode_header(data, offset, records.lsn_of(number, offset)):
        body = data[offset + RECORD_HEADER_BYTES : offset + header.size]
        item = Item(
            name, offset, header.size, header.lsn, header.synced_lsn, header.kind, is_cleaned
        )
        if header.kind is RecordKind.ADDS:
            batch = parse_header(body)
            entries = range(batch.first_entry_id, batch.last_entry_id + 1)
            item = replace(item, ledger_id=int(batch.ledger_id), entries=entries)
        elif header.kind not in (RecordKind.HEAD, RecordKind.FOOTER):
            item = replace(item, ledger_id=int(records.decode_ledger(body)))
        found.append(item)
        offset += header.size
    return found


# -- damage ------------------------------------------------------------------------------------


def draw_damage(template: Template, kind: str, rng: Random) -> Damage | None:
    """Draw damage of this kind; None if the directory has no place for it."""
    return KINDS[kind](template, kind, rng)


def _flipped(data: bytes, start: int, stop: int, rng: Random) -> bytes:
    changed = bytearray(data)
    for place in rng.sample(range(start, stop), min(stop - start, rng.randint(1, FLIPS_MAX))):
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _flip(
    wanted: Callable[[Template, Item], bool], span: Callable[[Item], tuple[int, int]]
) -> Callable[[Template, str, Random], Damage | None]:
    """Return damage that flips bits in a part of one of the given records."""

    def draw(template: Template, kind: str, rng: Random) -> Damage | None:
        found = [item for item in template.items if wanted(template, item)]
        if not found:
            return None
        item = rng.choice(found)
        start, stop = span(item)
        data = template.files[item.name]
        return Damage(kind, item.name, _flipped(data, item.offset + start, item.offset + stop, rng))

    return draw


def _is(*kinds: RecordKind) -> Callable[[Template, Item], bool]:
    return lambda _, item: item.kind in kinds


def _log_file(template: Template, rng: Random) -> tuple[str, bytes]:
    name = rng.choice([name for name, data in template.files.items() if _is_log(name) and data])
    return name, template.files[name]


def _is_log(name: str) -> bool:
    return name.startswith(LOG) and parse_name(name.removeprefix(LOG)) is not None


def _sector(template: Template, kind: str, rng: Random) -> Damage:
    """Zero, scramble or misplace sectors anywhere in a segment."""
    name, data = _log_file(template, rng)
    start = rng.randrange(len(data)) // SECTOR_BYTES * SECTOR_BYTES
    piece = data[start : start + SECTOR_BYTES]
    other = rng.randrange(len(data)) // SECTOR_BYTES * SECTOR_BYTES
    filling = (bytes(len(piece)), rng.randbytes(len(piece)), data[other : other + len(piece)])
    changed = data[:start] + rng.choice(filling) + data[start + len(piece) :]
    return Damage(kind, name, changed)


def _cut(template: Template, kind: str, rng: Random) -> Damage:
    name, data = _log_file(template, rng)
    return Damage(kind, name, data[: rng.randrange(len(data))])


def _remove(template: Template, kind: str, rng: Random) -> Damage:
    name, _ = _log_file(template, rng)
    return Damage(kind, name, rng.choice((None, b"")))


def _tail_of(template: Template) -> tuple[str, int]:
    last = max((item for item in template.items if not item.is_cleaned), key=lambda i: i.lsn)
    return last.name, records.offset_of(template.tail_lsn)


def _tear_tail(template: Template, kind: str, rng: Random) -> Damage:
    """Keep what a power cut may keep of the last group: any parts, with random bytes after them."""
    name, start = _tail_of(template)
    data = template.files[name]
    changed = bytearray(data)
    for low in range(start, len(data), SECTOR_BYTES):
        if rng.random() < 0.5:
            changed[low : low + SECTOR_BYTES] = bytes(len(changed[low : low + SECTOR_BYTES]))
    draw = rng.random()
    if draw < 0.4:
        del changed[rng.randint(start, len(data)) :]
    elif draw < 0.6:
        changed += rng.randbytes(rng.randint(1, 2 * SECTOR_BYTES))
    return Damage(kind, name, bytes(changed))


def _flip_tail(template: Template, kind: str, rng: Random) -> Damage | None:
    name, start = _tail_of(template)
    data = template.files[name]
    if start >= len(data):
        return None
    return Damage(kind, name, _flipped(data, start, len(data), rng))


def _append(template: Template, kind: str, rng: Random) -> Damage:
    name, _ = _tail_of(template)
    rubbish = rng.choice((rng.randbytes(700), bytes(5_000), template.files[name][:200]))
    return Damage(kind, name, template.files[name] + rubbish)


def _flip_page(template: Template, kind: str, rng: Random) -> Damage:
    data = template.files[INDEX]
    page = rng.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
    return Damage(kind, INDEX, _flipped(data, page, page + PAGE_BYTES, rng))


def _flip_branch_key(template: Template, kind: str, rng: Random) -> Damage | None:
    """Flip bits in one of the keys by which a search finds its page."""
    data = template.files[INDEX]
    keys = branch_keys(data)
    if not keys:
        return None
    found = rng.choice(keys)
    return Damage(kind, INDEX, _flipped(data, found.offset, found.offset + len(found.key), rng))


def _lose_page(template: Template, kind: str, rng: Random) -> Damage:
    data = template.files[INDEX]
    page = rng.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
    other = rng.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
    filling = (bytes(PAGE_BYTES), rng.randbytes(PAGE_BYTES), data[other : other + PAGE_BYTES])
    return Damage(kind, INDEX, data[:page] + rng.choice(filling) + data[page + PAGE_BYTES :])


def _cut_index(template: Template, kind: str, rng: Random) -> Damage:
    data = template.files[INDEX]
    return Damage(kind, INDEX, rng.choice((None, b"", data[: rng.randrange(len(data))])))


KINDS: Final[dict[str, Callable[[Template, str, Random], Damage | None]]] = {
    "record header": _flip(lambda _t, _i: True, lambda _: (0, RECORD_HEADER_BYTES)),
    "batch header": _flip(
        _is(RecordKind.ADDS),
        lambda _: (RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + _BATCH_HEADER_BYTES),
    ),
    "body": _flip(lambda _t, _i: True, lambda item: (RECORD_HEADER_BYTES, item.size)),
    "head": _flip(_is(RecordKind.HEAD), lambda item: (0, item.size)),
    "footer": _flip(_is(RecordKind.FOOTER), lambda item: (0, item.size)),
    "control record": _flip(
        _is(RecordKind.FENCE, RecordKind.EXPLICIT_LAC, RecordKind.TOMBSTONE, RecordKind.MASTER_KEY),
        lambda item: (0, item.size),
    ),
    "older segment": _flip(
        lambda template, item: records.segment_of(item.lsn) < records.segment_of(template.tail_lsn),
        lambda item: (0, item.size),
    ),
    "cleaned segment": _flip(lambda _, item: item.is_cleaned, lambda item: (0, item.size)),
    "last group flipped": _flip_tail,
    "last group torn": _tear_tail,
    "rubbish appended": _append,
    "sector": _sector,
    "segment cut": _cut,
    "segment gone": _remove,
    "index bits": _flip_page,
    "index branch key": _flip_branch_key,
    "index page": _lose_page,
    "index cut": _cut_index,
}


# -- what must survive ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survival:
    """Facts that a storage must still know after one damage."""

    promises: Promises
    is_torn_tail: bool
    """The damage looks like a group that was never synced: it is cut without an error."""
    sizes_min: dict[str, int]
    """Opening must not shorten any file of the log."""


def survival_of(template: Template, damage: Damage) -> Survival:
    """Compute these facts from the undamaged records."""
    is_index_whole = damage.name != INDEX
    bound = template.mark_lsn if is_index_whole else 0
    data = damage.data or b""
    for item in template.items:
        original = template.files[item.name][item.offset : item.offset + item.size]
        is_whole = item.name != damage.name or data[item.offset :][: item.size] == original
        if is_whole and not item.is_cleaned:
            bound = max(bound, item.synced_lsn)
    first = _first_difference(template.files[damage.name], data)
    parsed = parse_name(damage.name.removeprefix(LOG)) if _is_log(damage.name) else None
    is_tail = parsed is not None and not parsed[1] and records.lsn_of(parsed[0], first) >= bound
    promises = _still_promised(template, bound, keeps_all=is_tail, is_index_whole=is_index_whole)
    return Survival(promises, is_tail, _sizes_min(template, damage, bound))


def _first_difference(before: bytes, after: bytes) -> int:
    pairs = zip(before, after, strict=False)
    different = (place for place, (a, b) in enumerate(pairs) if a != b)
    return next(different, min(len(before), len(after)))


def _still_promised(
    template: Template, bound: int, *, keeps_all: bool, is_index_whole: bool
) -> Promises:
    """Leave out facts of which no remaining record proves that they were ever durable."""
    unproven = [item for item in template.items if not item.is_cleaned and item.lsn >= bound]
    left: dict[int, Promised] = {}
    for ledger_id, known in template.promises.ledgers.items():
        proven = {
            entry: None
            for item in template.items
            if item.ledger_id == ledger_id and (item.is_cleaned or item.lsn < bound)
            for entry in item.entries
        }
        mine = [item.kind for item in unproven if item.ledger_id == ledger_id]
        is_gone = known.is_delete_tried and not known.is_deleted
        left[ledger_id] = Promised(
            added={}
            if known.is_deleted or is_gone
            else {e: None for e in known.added if e in proven},
            end=known.end,
            lac=known.lac if keeps_all and not mine else -1,
            lac_tried=known.lac_tried,
            is_fence_tried=known.is_fence_tried,
            is_fenced=known.is_fenced and RecordKind.FENCE not in mine,
            is_delete_tried=known.is_delete_tried,
            is_deleted=known.is_deleted
            and is_index_whole
            and keeps_all
            and RecordKind.TOMBSTONE not in mine,
        )
    return Promises(left)


def _sizes_min(template: Template, damage: Damage, bound: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, original in template.files.items():
        parsed = parse_name(name.removeprefix(LOG)) if _is_log(name) else None
        if parsed is None or (name == damage.name and damage.data is None):
            continue
        size = len(damage.data or b"" if name == damage.name else original)
        number, is_cleaned = parsed
        if is_cleaned or number < records.segment_of(bound):
            sizes[name.removeprefix(LOG)] = size
        elif number == records.segment_of(bound):
            sizes[name.removeprefix(LOG)] = min(size, records.offset_of(bound))
    return sizes
