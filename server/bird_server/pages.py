"""Page tokens: opaque to clients, the place after the last item to us."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Annotated, Any, TypeVar, cast

from fastapi import Query

from bird_env.errors import InvalidRequest

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Items on a page.")]
PageToken = Annotated[str | None, Query(max_length=2_000, description="`next_page_token` of the page before.")]


def encode_token(place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


Place = TypeVar("Place", int, str, list[Any])


def decode_token(token: str | None, kind: type[Place]) -> Place | None:
    """The place a token stands for, None without one.

    Raises:
        InvalidRequest: No token of this list.
    """
    if token is None:
        return None
    try:
        place = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, binascii.Error, UnicodeEncodeError, RecursionError):
        place = None
    if not isinstance(place, kind) or not _is_a_place(place):
        raise InvalidRequest("`page_token` is none that this list gave.")
    return place


def _is_a_place(place: object) -> bool:
    """Whether a database takes it, or each part of it, as a value: a token is a client's to forge."""
    parts = cast("list[object]", place) if isinstance(place, list) else [place]
    return all(_is_64_bit(part) or (isinstance(part, str) and not _LONE_SURROGATE.search(part)) for part in parts)


def _is_64_bit(part: object) -> bool:
    return isinstance(part, int) and not isinstance(part, bool) and -(2**63) <= part < 2**63
