"""How the official evaluator compares two results, and what it cuts from SQL before it does.

Written from a behavioural specification of BIRD-CRITIC-1's SQLite evaluator (https://github.com/bird-bench/BIRD-CRITIC-1),
its faults included: comments are cut inside literals, ROUND is stripped without its brackets, DISTINCT is dropped as a
word, and multiplicity is ignored. Benchmark numbers are made with these rules, so they are kept byte for byte.

Everything here is pure and is offered to test functions under these names. Statements are run in `helpers`.
"""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, cast

_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LINE_COMMENT = re.compile(r"--.*?(\r\n|\r|\n)")
_BLANK_LINES = re.compile(r"\n\s*\n+")
_ROUND_CALL = re.compile(r"ROUND\s*\(", re.IGNORECASE)


def remove_comments(sql_list: list[str]) -> list[str]:
    """Each text without comments, without runs of blank lines, stripped; literals are not spared.

    A `--` with no line end after it stays, and a line comment leaves its line end.
    """
    cleaned: list[str] = []
    for sql in sql_list:
        text = _BLOCK_COMMENT.sub("", sql)
        text = _LINE_COMMENT.sub(r"\1", text)
        text = _BLANK_LINES.sub("\n", text)
        cleaned.append(text.strip())
    return cleaned


def remove_distinct(sql_list: list[str]) -> list[str]:
    """Each text without the pieces between single blanks that are the word DISTINCT, in any case."""
    return [" ".join(piece for piece in sql.split(" ") if piece.lower() != "distinct") for sql in sql_list]


def remove_round(sql_list: list[str]) -> list[str]:
    """Each text with every `ROUND(x, …)` replaced by `x`, innermost brackets dropped, literals and names not spared."""
    return [_without_round(sql) for sql in sql_list]


def _without_round(sql: str) -> str:
    while (call := _ROUND_CALL.search(sql)) is not None:
        first_end, close = _scan_call(sql, call.end())
        if close is None:
            break
        sql = sql[: call.start()] + sql[call.end() : first_end].strip() + sql[close + 1 :]
    return sql


def _scan_call(sql: str, start: int) -> tuple[int, int | None]:
    """Where the first argument of a call ends, and where the call's closing bracket is; brackets are only counted."""
    depth = 0
    first_end: int | None = None
    for position in range(start, len(sql)):
        character = sql[position]
        if character == "(":
            depth += 1
        elif character == ")":
            if depth == 0:
                return (position if first_end is None else first_end), position
            depth -= 1
        elif character == "," and depth == 0 and first_end is None:
            first_end = position
    return (len(sql) if first_end is None else first_end), None


def check_sql_function_usage(sqls: list[str], required_keywords: list[str]) -> int:
    """1 if every keyword stands somewhere in the joined texts, in any case; 0 if not, or if there is no text."""
    if not sqls:
        return 0
    joined = " ".join(sqls).lower()
    return 1 if all(keyword.lower() in joined for keyword in required_keywords) else 0


def preprocess_results(results: Any, decimal_places: int = 2) -> list[tuple[Any, ...]]:
    """Rows ready for comparison: dates as text, floats rounded in binary, decimals half up, lists and dicts as JSON.

    Raises:
        TypeError: `results` is None, or a nested cell has no JSON form.
    """
    return [tuple(_cell(value, decimal_places) for value in row) for row in results]


def _cell(value: Any, places: int) -> Any:
    normalized = _normalize(value, places)
    if isinstance(normalized, list | dict):
        return json.dumps(normalized, sort_keys=True)
    return normalized


def _normalize(value: Any, places: int) -> Any:
    if isinstance(value, date):  # a datetime is one too
        return value.strftime("%Y-%m-%d")
    if isinstance(value, float):
        return round(value, places)
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)
    if isinstance(value, list):
        return [_normalize(item, places) for item in cast("list[object]", value)]
    if isinstance(value, tuple):
        return tuple(_normalize(item, places) for item in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        return {key: _normalize(item, places) for key, item in cast("dict[object, object]", value).items()}
    return value


def equal_results(pred_rows: list[tuple[Any, ...]], gold_rows: list[tuple[Any, ...]], conditions: Any) -> int:
    """1 or 0 for two normalised results: an empty one never equals, order counts only where the conditions say so.

    Raises:
        AttributeError: `conditions` is neither None nor a mapping.
        TypeError: A cell cannot be hashed.
    """
    if not pred_rows or not gold_rows:
        return 0
    if conditions is not None and conditions.get("order", False):
        return 1 if pred_rows == gold_rows else 0
    return 1 if set(pred_rows) == set(gold_rows) else 0
