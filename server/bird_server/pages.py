"""Page tokens: opaque to clients, the place after the last item to us."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, TypeVar

from fastapi import Query

from bird_env.errors import InvalidRequest

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000

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
    if not isinstance(place, kind) or isinstance(place, bool):
        raise InvalidRequest("`page_token` is none that this list gave.")
    return place
