"""What a statement's text tells by itself: the word that it begins with.

SQLite passes over blanks, comments, semicolons and a byte order mark before a statement, and gives them back as part of
it. Whatever else is to be known of a statement is asked of SQLite, never of its text.
"""

from __future__ import annotations

import re

_BEFORE = re.compile(r"(?:[\s;\ufeff]|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]*")


def first_word(sql: str) -> str:
    """The statement's first word in lower case; empty where it begins with something else, or not at all."""
    before = _BEFORE.match(sql)
    found = _WORD.match(sql, before.end() if before else 0)
    return found.group().lower() if found else ""
