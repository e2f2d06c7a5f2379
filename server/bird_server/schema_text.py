"""A database's schema as text within a budget of characters.

CREATE statements in the order of the file; where they do not all fit, tables that the issue's SQL names come first, and
whatever is left out is at least named, so that a policy can ask for it (`PRAGMA table_info`, `sqlite_schema`). Where
even the names are too many, they are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bird_snapshots.schema import SchemaObject

#: What is left out is named in at most this part of the budget.
NOTE_SHARE = 4

_BETWEEN = "\n\n"
_MORE = ", …"


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The text, and how many characters of the whole it leaves out."""

    text: str
    truncated_chars: int


def full_text(objects: Sequence[SchemaObject]) -> str:
    """Every CREATE statement, each closed by a semicolon, a blank line between two."""
    return _BETWEEN.join(_statement(each) for each in _described(objects))


def within_budget(objects: Sequence[SchemaObject], chars: int, mentioned_in: Iterable[str] = ()) -> SchemaText:
    """The schema in at most `chars` characters; objects whose names occur in `mentioned_in` are kept first."""
    described = _described(objects)
    whole = full_text(objects)
    if len(whole) <= chars:
        return SchemaText(whole, 0)
    texts = list(mentioned_in)
    by_weight = sorted(range(len(described)), key=lambda index: not _is_mentioned(described[index].name, texts))
    kept: set[int] = set()
    names = [each.name for each in described]
    note_chars = max(chars // NOTE_SHARE, len(_counted(names)))
    room = chars - min(note_chars, len(_named(names)))
    for index in by_weight:
        cost = len(_statement(described[index])) + len(_BETWEEN)
        if cost <= room:
            kept.add(index)
            room -= cost
    shown = _BETWEEN.join(_statement(described[index]) for index in sorted(kept))
    note = _left_out([name for index, name in enumerate(names) if index not in kept], note_chars)
    return SchemaText(_BETWEEN.join(filter(None, (shown, note))), len(whole) - len(shown))


def _described(objects: Sequence[SchemaObject]) -> list[SchemaObject]:
    """What a policy should know of: not the shadow tables that a virtual table keeps for itself."""
    return [each for each in objects if each.sql and each.kind != "shadow"]


def _statement(each: SchemaObject) -> str:
    return f"{(each.sql or '').strip().rstrip(';')};"


def _is_mentioned(name: str, texts: Sequence[str]) -> bool:
    """Whether a text holds the name as a word of its own; a name may itself be several words."""
    found = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    return any(found.search(text) for text in texts)


def _counted(names: Sequence[str]) -> str:
    return f"-- {len(names)} more, not shown"


def _named(names: Sequence[str]) -> str:
    """A comment of one line, whatever a name holds."""
    return f"{_counted(names)}: {', '.join(' '.join(name.split()) for name in names)}"


def _left_out(names: Sequence[str], chars: int) -> str:
    """The names in at most `chars` characters: as many whole ones as there is room for, and all of them counted."""
    if len(_named(names)) <= chars:
        return _named(names)
    room = chars - len(f"{_counted(names)}: {_MORE}")
    shown: list[str] = []
    for name in names:
        room -= len(f"{name}, ")
        if room < 0:
            break
        shown.append(" ".join(name.split()))
    return f"{_counted(names)}: {', '.join(shown)}{_MORE}" if shown else _counted(names)
