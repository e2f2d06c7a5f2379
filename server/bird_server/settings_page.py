"""`docs/settings.md`, made from the settings table: a test holds the page to the code.

Write it anew with `python -m bird_server.settings_page > docs/settings.md`.
"""

from __future__ import annotations

import sys
from enum import Enum

from bird_server.settings import Settings

HEADER = """# Settings

Environment variables of `bird-env serve`; some have a flag too (`bird-env serve --help`). Units are in the names.
This page is made from the code: `python -m bird_server.settings_page > docs/settings.md`.

| variable | default | what it is |
|---|---|---|
"""


def page() -> str:
    """The page's text."""
    rows: list[str] = []
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        shown = "" if default is None else str(default.value if isinstance(default, Enum) else default)
        rows.append(f"| `BIRD_ENV_{name.upper()}` | {f'`{shown}`' if shown else ''} | {field.description} |\n")
    return HEADER + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
