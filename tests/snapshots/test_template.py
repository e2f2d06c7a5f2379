"""The directory of templates: listed, verified, removed, linked, and never half made."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bird_snapshots.errors import (
    CrossDevice,
    EngineFault,
    LinkRefused,
    SnapshotError,
    StoreFull,
    TemplateDamaged,
    TemplateInUse,
    TemplateMissing,
    TooManyLinks,
)
from bird_snapshots.files import FileOps
from bird_snapshots.store import Store
from bird_snapshots.template import Template, TemplateStore
from bird_snapshots.testing import FaultyFiles

Maker = Callable[..., Path]


class CrowdedFiles(FileOps):
    """A filesystem that allows only so many links of one inode."""

    def __init__(self, most: int) -> None:
        self.most = most

    def link(self, source: Path, target: Path) -> None:
        if source.stat().st_nlink >= self.most:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), str(source))
        super().link(source, target)


def test_listed_in_order_and_found_by_digest(store: Store, make_database: Maker) -> None:
    made = [store.templates.publish(make_database(f"CREATE TABLE t{index}(a)", f"{index}.db")) for index in range(5)]
    assert store.templates.list() == sorted(made, key=lambda each: each.digest)
    assert all(store.templates.get(each.digest) == each for each in made)
    assert all(each.path.name == f"{each.digest}.db" and each.size_bytes == each.path.stat().st_size for each in made)


@pytest.mark.parametrize("digest", ["0" * 64, "", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_missing(store: Store, digest: str) -> None:
    for call in (
        store.templates.get,
        store.templates.verify,
        store.templates.remove,
        store.templates.schema,
        store.acquire,
    ):
        with pytest.raises(TemplateMissing):
            call(digest)


def test_other_files_are_not_listed(store: Store, template: Template) -> None:
    for name in ("README", "x.db", f"{template.digest}.db-wal", "0" * 64):
        (template.path.parent / name).write_bytes(b"x")
    assert store.templates.list() == [template]


def test_removed_only_when_unused(store: Store, template: Template) -> None:
    replica = store.acquire(template.digest)
    with pytest.raises(TemplateInUse, match="1 replicas"):
        store.templates.remove(template.digest)
    replica.release()
    store.templates.remove(template.digest)
    assert store.templates.list() == []
    with pytest.raises(TemplateMissing):
        store.acquire(template.digest)


def test_verify_finds_a_changed_byte_and_a_short_file(store: Store, template: Template) -> None:
    store.templates.verify(template.digest)
    data = template.path.read_bytes()
    for wrong in (data[:-1], data[:200] + b"x" + data[201:], b"junk"):
        template.path.write_bytes(wrong)
        with pytest.raises(TemplateDamaged):
            store.templates.verify(template.digest)
    with pytest.raises(TemplateDamaged):
        store.templates.get(template.digest)
    store.templates.remove(template.digest)


def test_usable_beside_a_living_store(store: Store, make_database: Maker) -> None:
    beside = TemplateStore(store.root)
    published = beside.publish(make_database("CREATE TABLE x(y)", "x.db"))
    assert store.acquire(published.digest).execute("SELECT * FROM x").rows == []
    with pytest.raises(TemplateInUse):
        beside.remove(published.digest)


def test_a_store_that_opens_does_not_sweep_a_living_publisher(
    tmp_path: Path, make_database: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = TemplateStore(tmp_path / "store")
    (tmp_path / "store" / "tmp" / "publish-dead").mkdir()
    (tmp_path / "store" / "tmp" / "left.temp").write_bytes(b"left")
    original = templates._files.sha256

    def hash_late(path: Path) -> str:
        with Store(tmp_path / "store"):
            names = [each.name for each in (tmp_path / "store" / "tmp").iterdir()]
            assert names == [path.parent.name]
        return original(path)

    monkeypatch.setattr(templates._files, "sha256", hash_late)
    templates.publish(make_database())
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


class TestLinks:
    def test_used_up_links_bring_another_copy(self, tmp_path: Path, make_database: Maker) -> None:
        with Store(tmp_path / "store", files=CrowdedFiles(3)) as store:
            template = store.templates.publish(make_database())
            replicas = [store.acquire(template.digest) for _ in range(7)]
            assert len({each._path.stat().st_ino for each in replicas}) == 4
            for index, each in enumerate(replicas):
                each.execute(f"UPDATE t SET b = {index}")
                child = each.branch()
                assert child.execute("SELECT DISTINCT b FROM t").rows == [(index,)]
                child.release()
            assert store.templates.list() == [template]
            store.templates.verify(template.digest)
            with pytest.raises(TemplateInUse, match="7 replicas"):
                store.templates.remove(template.digest)
            names = sorted(each.name for each in template.path.parent.iterdir())
            assert names[0] == f"{template.digest}.1.db"
            for each in replicas:
                each.release()
            store.templates.remove(template.digest)
            assert list(template.path.parent.iterdir()) == []

    def test_a_copy_that_cannot_be_linked_either_is_an_error(self, tmp_path: Path, make_database: Maker) -> None:
        files = FaultyFiles("link", errno.EMLINK, at=0)
        with Store(tmp_path / "store", files=files) as store:
            template = store.templates.publish(make_database())
            with pytest.raises(TooManyLinks):
                store.acquire(template.digest)

    def test_a_damaged_template_is_not_copied(self, tmp_path: Path, make_database: Maker) -> None:
        with Store(tmp_path / "store", files=CrowdedFiles(2)) as store:
            template = store.templates.publish(make_database())
            store.acquire(template.digest)
            data = template.path.read_bytes()
            with template.path.open("r+b") as file:
                file.seek(len(data) - 1)
                file.write(bytes([data[-1] ^ 1]))
            with pytest.raises(TemplateDamaged):
                store.acquire(template.digest)
            with template.path.open("r+b") as file:
                file.write(data)

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.EXDEV, CrossDevice),
            (errno.EPERM, LinkRefused),
            (errno.EACCES, LinkRefused),
            (errno.EROFS, LinkRefused),
            (errno.ENOSPC, StoreFull),
            (errno.EDQUOT, StoreFull),
            (errno.EMFILE, StoreFull),
            (errno.ENFILE, StoreFull),
            (errno.ENOENT, TemplateMissing),
            (errno.EIO, EngineFault),
        ],
    )
    def test_refusals_are_told_apart(
        self, tmp_path: Path, make_database: Maker, number: int, kind: type[SnapshotError]
    ) -> None:
        files = FaultyFiles("link", number)
        with Store(tmp_path / "store", files=files) as store:
            template = store.templates.publish(make_database())
            with pytest.raises(kind) as caught:
                store.acquire(template.digest)
            assert type(caught.value) is kind
            assert caught.value.code
            assert list((store.root / "replicas").iterdir()) == []
            assert store.statistics().live == 0
            assert store.acquire(template.digest).execute("SELECT count(*) FROM t").rows == [(100,)]


class TestFaults:
    OPERATIONS = ("mkdir", "lock", "write_at", "read", "sync", "sha256", "rename", "copy", "stat")

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
    @pytest.mark.parametrize("after", [False, True])
    def test_every_fault_of_publishing_leaves_nothing_half_made(
        self, tmp_path: Path, make_database: Maker, operation: str, number: int, after: bool
    ) -> None:
        source = make_database(before="PRAGMA journal_mode = WAL;")
        with closing(sqlite3.connect(source)) as writer:
            writer.execute("UPDATE t SET b = 1")
            writer.commit()  # a WAL lies beside it while the writer lives: publishing copies both
            count = FaultyFiles()
            TemplateStore(tmp_path / "counted", files=count).publish(source)
            assert count.calls[operation] > 0
            for at in range(1, count.calls[operation] + 1):
                root = tmp_path / f"store{at}"
                files = FaultyFiles(operation, number, at=at, after=after)
                with pytest.raises(SnapshotError) as caught:
                    TemplateStore(root, files=files).publish(source)
                expected = EngineFault if number == errno.EIO else StoreFull
                assert isinstance(caught.value, expected), (at, caught.value)
                templates = TemplateStore(root)
                assert list((root / "tmp").iterdir()) == []
                for each in templates.list():  # a fault after the rename leaves a whole template
                    templates.verify(each.digest)
                assert templates.publish(source).size_bytes > 0

    @pytest.mark.parametrize("operation", ["link", "copy", "unlink", "read", "names", "lock", "mkdir"])
    def test_every_fault_of_a_replicas_life_leaves_nothing_half_made(
        self, tmp_path: Path, make_database: Maker, operation: str
    ) -> None:
        root = tmp_path / "store"
        digest = TemplateStore(root).publish(make_database()).digest

        def live(files: FileOps) -> None:
            with Store(root, files=files) as store:
                replica = store.acquire(digest)
                replica.execute("UPDATE t SET b = 7")
                child = replica.branch()
                assert child.execute("SELECT DISTINCT b FROM t").rows == [(7,)]
                fresh = child.reset(release=True)
                assert fresh.execute("SELECT max(b) FROM t").rows == [(1000,)]
                fresh.release()

        count = FaultyFiles()
        live(count)
        for after in (False, True):
            for at in range(1, count.calls[operation] + 1):
                with pytest.raises(SnapshotError):
                    live(FaultyFiles(operation, errno.ENOSPC, at=at, after=after))
                live(FaultyFiles())
                assert list((root / "replicas").iterdir()) == []
                assert list((root / "tmp").iterdir()) == []
        TemplateStore(root).verify(digest)
        TemplateStore(root).remove(digest)
