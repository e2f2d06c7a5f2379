"""A database's schema as text within a budget of characters.

CREATE statements in the order of the file; where they do not all fit, tables that the issue's SQL names come first, and
whatever is left out is at least named, so that a policy can ask for it (`PRAGMA table_info`, `sqlite_schema`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bird_snapshots.schema import SchemaObject


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The text, and how many characters of the whole it leaves out."""

    text: str
    truncated_chars: int


def full_text(objects: Sequence[SchemaObject]) -> str:
    """Every CREATE statement, each closed by a semicolon, a blank line between two."""
    return "\n\n".join(_statement(each) for each in _described(objects))


def within_budget(objects: Sequence[SchemaObject], chars: int, mentioned_in: Iterable[str] = ()) -> SchemaText:
    """The schema in at most `chars` characters; objects whose names occur in `mentioned_in` are kept first."""
    described = _described(objects)
    whole = full_text(objects)
    if len(whole) <= chars:
        return SchemaText(whole, 0)
    words = {word.lower() for text in mentioned_in for word in re.findall(r"\w+", text)}
    by_weight = sorted(range(len(described)), key=lambda index: described[index].name.lower() not in words)
    kept: set[int] = set()
    left_out_note = _left_out([each.name for each in described], chars // 4)
    room = chars - len(left_out_note)
    for index in by_weight:
        cost = len(_statement(described[index])) + 2
        if cost <= room:
            kept.add(index)
            room -= cost
    parts = [_statement(described[index]) for index in sorted(kept)]
    missing = [each.name for index, each in enumerate(described) if index not in kept]
    text = "\n\n".join([*parts, _left_out(missing, chars // 4)])[:chars]
    return SchemaText(text, max(0, len(whole) - sum(len(part) for part in parts)))


def _described(objects: Sequence[SchemaObject]) -> list[SchemaObject]:
    """What a policy should know of: not the shadow tables that a virtual table keeps for itself."""
    return [each for each in objects if each.sql and each.kind != "shadow"]


def _statement(each: SchemaObject) -> str:
    return f"{(each.sql or '').strip().rstrip(';')};"


def _left_out(names: Sequence[str], chars: int) -> str:
    note = f"-- {len(names)} more, not shown: " + ", ".join(names)
    return note if len(note) <= chars else note[: max(0, chars - 4)] + " …"
