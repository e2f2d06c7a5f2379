"""`verdicts.jsonl`: one line a scored task, appended as it goes, taken up again by a later run.

A line names what it judged by digests: the task's record, the template, the prediction, the mode, the limit, and the
versions that judged. A later run reuses a line when all of them are the same, and drops it when one is not. A process
killed while it wrote leaves a torn last line, which is dropped too. One run at a time: the folder is locked.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bird_env.errors import DataError
from bird_server.scoring.job import VERDICT_FIELDS, ScoringResult, Verdict

FILE_NAME = "verdicts.jsonl"


@dataclass(frozen=True, slots=True)
class ScoringKey:
    """All that a verdict depends on."""

    task_digest: str
    template_sha256: str
    prediction_digest: str
    mode: str
    limit_s: float
    versions: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "task_digest": self.task_digest,
            "template_sha256": self.template_sha256,
            "prediction_digest": self.prediction_digest,
            "mode": self.mode,
            "limit_s": self.limit_s,
            "versions": dict(self.versions),
        }


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """A verdict as a line keeps it."""

    instance_id: str
    verdict: Verdict
    line: dict[str, Any]


class VerdictLog:
    """The verdicts of one folder, held for one run.

    Raises:
        DataError: The folder cannot be used, or another run holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise DataError(f"{folder} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = _read_lines(self.path)
        except BlockingIOError as error:
            os.close(self._lock)
            raise DataError(f"another run writes to {folder}", hint="Wait for it, or choose another --out.") from error
        except OSError as error:
            os.close(self._lock)
            raise DataError(f"{self.path} cannot be read: {error.strerror}") from error
        self._found: dict[str, dict[str, Any]] = {line["instance_id"]: line for line in lines}
        self._kept: dict[str, dict[str, Any]] = {}
        self._append: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def reuse(self, instance_id: str, key: ScoringKey) -> LoggedVerdict | None:
        """The verdict of an earlier run on the same task, template and prediction; None where there is none."""
        line = self._found.get(instance_id)
        if line is None or {name: line.get(name) for name in key.as_dict()} != key.as_dict():
            return None
        self._kept[instance_id] = line
        return LoggedVerdict(instance_id, _verdict(line["official"]), line)

    def begin(self) -> None:
        """Rewrite the file with what was reused, whole or not at all, and open it for more."""
        self._rewrite(self._kept.values())
        self._append = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def add(self, instance_id: str, key: ScoringKey, result: ScoringResult, **more: Any) -> LoggedVerdict:
        """Append a verdict; on disk before this returns, as far as a crash of this process goes."""
        if self._append is None:
            raise RuntimeError("begin() was not called")
        line: dict[str, Any] = {
            "instance_id": instance_id,
            "official": result.verdict.as_dict(),
            "ended": result.ended,
            "elapsed_ms": round(result.elapsed_ms, 3),
            **more,
            **key.as_dict(),
        }
        data = memoryview(_spell(line))
        while data:
            data = data[os.write(self._append, data) :]
        self._kept[instance_id] = line
        return LoggedVerdict(instance_id, result.verdict, line)

    def finish(self, order: Iterable[str]) -> None:
        """Put the lines into this order of ids, whole or not at all."""
        self._rewrite(self._kept[instance_id] for instance_id in order if instance_id in self._kept)

    def close(self) -> None:
        """Let go of the folder. A second call does nothing."""
        if self._append is not None:
            os.close(self._append)
            self._append = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _rewrite(self, lines: Iterable[Mapping[str, Any]]) -> None:
        partial = self.path.with_name(f".{FILE_NAME}.new")
        partial.write_bytes(b"".join(_spell(line) for line in lines))
        partial.replace(self.path)


def _spell(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line) + "\n").encode("ascii")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Lines that hold a verdict; a torn one, or one of another program, is passed over."""
    if not path.exists():
        return []
    lines: list[dict[str, Any]] = []
    for text in path.read_bytes().split(b"\n"):
        try:
            line = json.loads(text)
            _verdict(line["official"])
            if isinstance(line["instance_id"], str):
                lines.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return lines


def _verdict(official: Mapping[str, Any]) -> Verdict:
    return Verdict(**{name: official[name] for name in VERDICT_FIELDS})
