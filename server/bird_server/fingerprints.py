"""Whether two requests are the same request: a hash over their canonical JSON."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel


def fingerprint(model: BaseModel, *, exclude: set[str] | None = None) -> str:
    """sha256 over the fields as given or defaulted, whatever their order in the body was."""
    text = json.dumps(model.model_dump(mode="python", exclude=exclude), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
