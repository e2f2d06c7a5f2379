"""`bird-env tasks …`: the tasks of a data directory, and whether tasks are sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bird_env.cli import UNUSABLE, requires_extra, shown, tell
from bird_server.commands._output import errors_told, print_json, print_table, remark, remark_some
from bird_server.commands.databases import DataOption, JsonOption, is_empty

if TYPE_CHECKING:
    from bird_env.tasks import Problem, Task, TaskFile
    from bird_server.validation import TaskCheck


class TaskFormat(StrEnum):
    AUTO = "auto"
    CRITIC = "critic"
    BIRD = "bird"


FormatOption = Annotated[
    TaskFormat, typer.Option("--format", help="critic: BIRD-CRITIC, SIX-GYM. bird: BIRD. auto: by the fields.")
]
GoldOption = Annotated[Path | None, typer.Option(help="File of gold and tests, merged in by instance_id.")]


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Import, list, show and validate tasks.", no_args_is_help=True)
    app.add_typer(group, name="tasks")

    @group.command("import")
    @requires_extra("server")
    def import_(  # pyright: ignore[reportUnusedFunction]
        file: Annotated[Path, typer.Argument(help="Tasks as published: JSON, JSON Lines or Parquet.")],
        databases: Annotated[
            Path | None, typer.Option(help="Folder of databases; those that the tasks need are imported too.")
        ] = None,
        gold: GoldOption = None,
        format: FormatOption = TaskFormat.AUTO,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Import tasks. Exit code 1 when a record or a database was refused; the rest is imported."""
        kept = "Databases that were imported stay; the same command again imports the rest."
        with errors_told(as_json=as_json, kept=kept):
            code = _import(file, databases, gold, format, data, as_json=as_json)
        raise typer.Exit(code)

    @group.command("list")
    @requires_extra("server")
    def list_(  # pyright: ignore[reportUnusedFunction]
        database: Annotated[str | None, typer.Option(help="Only those on this database.")] = None,
        category: Annotated[str | None, typer.Option(help="Only those of this category.")] = None,
        unscorable: Annotated[bool, typer.Option("--unscorable", help="Only those without gold.")] = False,
        limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List tasks by id."""
        with errors_told(as_json=as_json):
            tasks = _stored(data, database=database, category=category, limit=limit, unscorable=unscorable)
        if as_json:
            print_json({"tasks": [_public(task) for task in tasks]})
        else:
            _tell_list(tasks)

    @group.command()
    @requires_extra("server")
    def show(  # pyright: ignore[reportUnusedFunction]
        task_id: Annotated[str, typer.Argument(help="The task's instance_id.")],
        gold: Annotated[bool, typer.Option("--gold", help="With its gold and its tests.")] = False,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show one task as a policy may see it; with --gold, all of it."""
        with errors_told(as_json=as_json):
            _show(task_id, data, gold=gold, as_json=as_json)

    @group.command()
    @requires_extra("server")
    def validate(  # pyright: ignore[reportUnusedFunction]
        tasks: Annotated[Path | None, typer.Option(help="A file of tasks, instead of those of --data.")] = None,
        databases: Annotated[Path | None, typer.Option(help="Folder of the file's databases.")] = None,
        gold: GoldOption = None,
        format: FormatOption = TaskFormat.AUTO,
        workers: Annotated[int | None, typer.Option(min=1, help="Scorings at once; by default one a core.")] = None,
        limit_s: Annotated[float, typer.Option(min=0.1, help="Seconds a scoring may take; 180 is official.")] = 180.0,
        data: DataOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Score each task's gold, which must pass, and its issue_sql, which must fail.

        Exit code 1 when a task is broken: it is listed with the cause. Tasks without gold are not checked.
        """
        if (tasks is None) != (databases is None) or (gold is not None and tasks is None):
            tell("usage", "--tasks and --databases go together, and --gold goes with them.", as_json=as_json)
            raise typer.Exit(UNUSABLE)
        kept = "Nothing is kept: the same command again begins anew."
        with errors_told(as_json=as_json, kept=kept):
            code = _validate(tasks, databases, gold, format, data, workers, limit_s, as_json=as_json)
        raise typer.Exit(code)


def _import(
    file: Path, databases: Path | None, gold: Path | None, format: TaskFormat, data: Path | None, *, as_json: bool
) -> int:
    from bird_env.tasks import read_tasks
    from bird_server.catalogue import Catalogue
    from bird_server.commands.databases import import_report, publish, tell_import
    from bird_server.database_files import DatabaseFile, FoundFiles, locate_database
    from bird_server.datadir import data_directory

    found = read_tasks(file, format=format.value, gold=gold)
    needed = Counter(task.database for task in found.tasks)
    files = FoundFiles(())
    if databases is not None:
        located = {name: locate_database(databases, name) for name in sorted(needed)}
        files = FoundFiles(tuple(DatabaseFile(name, path) for name, path in located.items() if path is not None))
    outcomes = publish([files], data) if files.files else []
    with Catalogue(data_directory(data).root) as catalogue:
        added = catalogue.add_tasks(found.tasks, source=str(file.absolute()))
        missing = {name: count for name, count in sorted(needed.items()) if catalogue.database(name) is None}
    report: dict[str, Any] = {
        "added": len(added.added),
        "replaced": list(added.replaced),
        "unchanged": len(added.unchanged),
        "scorable": sum(task.scorable for task in found.tasks),
        "unscorable": [task.instance_id for task in found.tasks if not task.scorable],
        "problems": [_problem(problem) for problem in found.problems],
        "remark": None if found.tasks or found.problems else _nothing_in(file),
        "databases": import_report(outcomes, []),
        "missing_databases": missing,
    }
    if as_json:
        print_json(report)
    else:
        if outcomes:
            tell_import(outcomes, [])
        _tell_import(found, report)
    refused = any(outcome.refused is not None for outcome in outcomes)
    return 1 if found.dropped or refused or not found.tasks or (missing and databases is not None) else 0


def _tell_import(found: TaskFile, report: dict[str, Any]) -> None:
    _tell_problems(found.problems)
    if report["remark"]:
        remark(report["remark"])
    if report["replaced"]:
        remark(f"{len(report['replaced'])} tasks were there with other content: {_some(report['replaced'])}")
    if report["unscorable"]:
        ids = _some(report["unscorable"])
        remark(f"{len(report['unscorable'])} tasks have no gold and cannot be scored (--gold merges it in): {ids}")
    missing = [
        f"{name}: {count} tasks are on it, but it was not imported (`bird-env databases import`)"
        for name, count in report["missing_databases"].items()
    ]
    remark_some(missing, "--json has them all")
    dropped = f", {found.dropped} records left out" if found.dropped else ""
    typer.echo(
        f"{len(found.tasks)} tasks imported: {report['added']} added, {len(report['replaced'])} replaced, "
        f"{report['unchanged']} unchanged{dropped}"
    )


def _nothing_in(file: Path) -> str:
    """Why a file without a record imports nothing."""
    return f"{file} {'is empty (0 bytes)' if is_empty(file) else 'holds no record'}: there is no task to import."


def _stored(
    data: Path | None,
    *,
    database: str | None = None,
    category: str | None = None,
    limit: int | None = None,
    unscorable: bool = False,
) -> list[Task]:
    from bird_server.catalogue import Catalogue
    from bird_server.datadir import data_directory

    with Catalogue(data_directory(data).root, make=False) as catalogue:
        scorable = False if unscorable else None
        return catalogue.tasks(database=database, category=category, scorable=scorable, limit=limit)


def _tell_list(tasks: Sequence[Task]) -> None:
    rows = [
        (
            task.instance_id,
            task.database,
            task.category or task.difficulty or "",
            "yes" if task.scorable else "no gold",
            " ".join(task.issue.split()),
        )
        for task in tasks
    ]
    columns = ("id", "database", "category", "scorable", "issue")
    print_table(f"{len(tasks)} tasks", columns, rows, rest="issue")


def _show(task_id: str, data: Path | None, *, gold: bool, as_json: bool) -> None:
    from bird_env.errors import UnknownTask
    from bird_env.tasks.record import is_list
    from bird_server.catalogue import Catalogue
    from bird_server.datadir import data_directory

    with Catalogue(data_directory(data).root, make=False) as catalogue:
        task = catalogue.task(task_id)
    if task is None:
        raise UnknownTask(f"There is no task {task_id!r}", hint="`bird-env tasks list` shows them.")
    document = _public(task)
    if gold:
        document["sol_sql"] = list(task.sol_sql)
        document["test_cases"] = list(task.test_cases)
        document["clean_up_sql"] = list(task.clean_up_sql)
        document["conditions"] = task.conditions
    if as_json:
        print_json(document)
        return
    for key, value in document.items():
        for entry in value if is_list(value) else [value]:
            if entry is not None:
                lines = str(entry).split("\n")
                typer.echo(f"{key}: " + "\n    ".join(shown(line) for line in lines))


def _validate(
    tasks: Path | None,
    databases: Path | None,
    gold: Path | None,
    format: TaskFormat,
    data: Path | None,
    workers: int | None,
    limit_s: float,
    *,
    as_json: bool,
) -> int:
    import asyncio
    import tempfile

    from bird_env.errors import DataError, UnknownDatabase
    from bird_env.tasks import read_tasks
    from bird_server.commands._progress import progress_bar
    from bird_server.datadir import data_directory
    from bird_server.scoring.databases import collect
    from bird_server.scoring.pool import ScorerPool, usable_cores
    from bird_server.validation import validate

    problems: Sequence[Problem] = ()
    if tasks is not None and databases is not None:
        found = read_tasks(tasks, format=format.value, gold=gold)
        given, problems, source = list(found.tasks), found.problems, databases
    else:
        given, source = _stored(data), data_directory(data).root
    if not given:
        raise DataError("there is no task to validate", hint="`bird-env tasks import` adds some.")
    scorable = [task for task in given if task.scorable]
    at_once = workers if workers is not None else usable_cores()

    with tempfile.TemporaryDirectory(prefix="bird-env-validate-", ignore_cleanup_errors=True) as scratch:
        names = {task.database for task in scorable}
        with progress_bar("databases", len(names)) as advance:
            ready = collect(source, names, Path(scratch), on_database=lambda: advance(1))

        def database_of(task: Task) -> Path:
            if task.database not in ready.found:
                raise UnknownDatabase(ready.absent[task.database])
            return ready.found[task.database].path

        async def run() -> list[TaskCheck]:
            checks: list[TaskCheck] = []
            async with ScorerPool(children=at_once) as pool:
                with progress_bar("tasks", len(scorable)) as advance:
                    async for check in validate(scorable, database_of, pool, workers=2 * at_once, limit_s=limit_s):
                        checks.append(check)
                        advance(1)
            return checks

        checks = asyncio.run(run())
    return _tell_checks(given, checks, problems, as_json=as_json)


def _tell_checks(
    tasks: Sequence[Task], checks: Sequence[TaskCheck], problems: Sequence[Problem], *, as_json: bool
) -> int:
    order = {task.instance_id: place for place, task in enumerate(tasks)}
    broken = sorted((check for check in checks if check.broken), key=lambda check: order[check.instance_id])
    gold, issue = Counter(check.gold for check in checks), Counter(check.issue for check in checks)
    unscorable = [task.instance_id for task in tasks if not task.scorable]
    if as_json:
        print_json(
            {
                "tasks": len(tasks),
                "gold": {"pass": gold["pass"], "fail": gold["fail"], "unchecked": gold["unchecked"]},
                "issue": {"fail": issue["fail"], "pass": issue["pass"], "unchecked": issue["unchecked"]},
                "broken": [
                    {
                        "instance_id": check.instance_id,
                        "database": check.database,
                        "gold": check.gold,
                        "issue": check.issue,
                        "causes": list(check.causes),
                    }
                    for check in broken
                ],
                "unscorable": unscorable,
                "problems": [_problem(problem) for problem in problems],
            }
        )
    else:
        _tell_problems(problems)
        if broken:
            rows = [(check.instance_id, check.gold, check.issue, "; ".join(check.causes)) for check in broken]
            print_table(f"{len(broken)} broken tasks", ("id", "gold", "issue", "cause"), rows)
        if unscorable:
            remark(f"{len(unscorable)} tasks have no gold and were not checked: {_some(unscorable)}")
        typer.echo(f"{gold['pass']} gold pass, {issue['fail']} issue fail")
    return 1 if broken or any(problem.dropped for problem in problems) else 0


def _tell_problems(problems: Sequence[Problem]) -> None:
    lines = [f"{problem}{' (left out)' if problem.dropped else ''}" for problem in problems]
    remark_some(lines, "--json has them all")


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "source": problem.source,
        "unit": problem.unit,
        "number": problem.number,
        "instance_id": problem.instance_id,
        "reason": problem.reason,
        "dropped": problem.dropped,
    }


def _public(task: Task) -> dict[str, Any]:
    return dict(task.public())


def _some(names: Sequence[str], count: int = 5) -> str:
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")
