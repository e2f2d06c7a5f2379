"""Prompt templates: the first observation as chat messages, from a named, versioned Jinja file.

A template is a Jinja file with the blocks `system` (optional) and `user`; its first line `{# version: N #}` is its
version. Shipped are `plain` and `bird_rl`; a folder of the operator's own adds or replaces by name. Templates get
`issue`, `schema`, `schema_truncated_chars`, `issue_sql` (list), `evidence`, `database`, `max_steps`. They run
sandboxed: a template file is trusted no further than the text it makes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from bird_env.errors import DataError, InvalidRequest
from bird_env.models import ChatMessage

BUILT_IN = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"\{#-?\s*version:\s*([\w.]+)\s*-?#\}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages, and the template that made them as `name@version`."""

    messages: Sequence[ChatMessage]
    template: str

    @property
    def text(self) -> str:
        """The user's turn alone."""
        return next(message.content for message in self.messages if message.role == "user")


class Prompts:
    """The templates of one server; all are compiled at start, so that a broken one is an error there and then.

    Raises:
        DataError: A file is no template, or has no `user` block.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._environment = SandboxedEnvironment(
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates: dict[str, tuple[Template, str]] = {}
        for place in (BUILT_IN, folder):
            if place is None:
                continue
            if not place.is_dir():
                raise DataError(f"{place} is no folder.", hint="`--prompts` names a folder with files NAME.j2.")
            for path in sorted(place.glob("*.j2")):
                self._templates[path.stem] = self._compile(path)

    @property
    def names(self) -> list[str]:
        return sorted(self._templates)

    def render(self, name: str, context: Mapping[str, Any]) -> Prompt:
        """Fill a template.

        Raises:
            InvalidRequest: No template has this name.
            DataError: The template asks for something that it is not given.
        """
        found = self._templates.get(name)
        if found is None:
            raise InvalidRequest(f"There is no prompt template {name!r}; there are: {', '.join(self.names)}.")
        template, version = found
        messages: list[ChatMessage] = []
        try:
            for role in ("system", "user"):
                if role in template.blocks:
                    block = template.blocks[role](template.new_context(dict(context)))
                    content = re.sub(r"\n{3,}", "\n\n", "".join(block)).strip()
                    messages.append(ChatMessage(role=role, content=content))
        except TemplateError as error:
            raise DataError(f"The prompt template {name} fails: {error}") from error
        return Prompt(messages, f"{name}@{version}")

    def _compile(self, path: Path) -> tuple[Template, str]:
        if not _NAME.fullmatch(path.stem):
            raise DataError(f"{path.name}: a template's name is letters, digits, `_`, `-` and `.`.")
        try:
            source = path.read_text("utf-8")
            template = self._environment.from_string(source)
        except (OSError, UnicodeDecodeError, TemplateError) as error:
            raise DataError(f"{path} is no prompt template: {error}") from error
        if "user" not in template.blocks:
            raise DataError(f"{path} has no block `user`.", hint="Write {% block user %} … {% endblock %}.")
        version = _VERSION.search(source)
        return template, version.group(1) if version else hashlib.sha256(source.encode()).hexdigest()[:8]
