"""The storage engine: immutable SQLite templates and copy-on-write replicas of them.

    with Store(root) as store:
        template = store.templates.publish(Path("shop.sqlite"))
        replica = store.acquire(template.digest)
        result = replica.execute("UPDATE t SET a = 1 RETURNING id")
        child = replica.branch()

`errors` draws the tree of what can go wrong; docs/storage.md tells what lies on the disk and what is guaranteed.
"""

from bird_snapshots.execution import Execution, StatementResult
from bird_snapshots.failures import Outcome, SqlFailure
from bird_snapshots.limits import DEFAULT_LIMITS, Limits
from bird_snapshots.native import Value
from bird_snapshots.position import Position
from bird_snapshots.replica import Replica
from bird_snapshots.schema import Column, ForeignKey, SchemaObject
from bird_snapshots.store import Store, StoreStatistics
from bird_snapshots.template import Template, TemplateStore

__all__ = [
    "DEFAULT_LIMITS",
    "Column",
    "Execution",
    "ForeignKey",
    "Limits",
    "Outcome",
    "Position",
    "Replica",
    "SchemaObject",
    "SqlFailure",
    "StatementResult",
    "Store",
    "StoreStatistics",
    "Template",
    "TemplateStore",
    "Value",
]
