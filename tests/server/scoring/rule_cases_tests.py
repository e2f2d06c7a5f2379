"""Cases of our own for what a test function sees and may do: names, state, exceptions, processes, descriptors."""

from __future__ import annotations

from server.scoring.rule_cases import ERROR, NO_VERDICT, SUCCESS, WRONG, T, checked, of_tests, rule

TESTS = [
    rule(
        "two of three",
        ["SELECT 1"],
        {**of_tests(WRONG, 3), "passed": 2, "failed_tests": ["test_2"]},
        test_cases=[T("pass"), T("assert 0"), T("pass")],
    ),
    rule("no test runs after an error", ["SELECT nope"], of_tests(ERROR, 1), test_cases=[T("pass")]),
    rule("conditions come by keyword", ["SELECT 1"], of_tests(WRONG, 1), test_cases=[T("pass", "a, b, c, d")]),
    rule(
        "under another name they are missing", ["SELECT 1"], of_tests(WRONG, 1), test_cases=[T("pass", "a, b, c, d, e")]
    ),
    rule(
        "as keyword only",
        ["SELECT 1"],
        of_tests(SUCCESS, 1),
        test_cases=[T("assert conditions == {}", "a, b, c, d, *, conditions")],
    ),
    rule(
        "four by position",
        ["SELECT 1"],
        of_tests(SUCCESS, 1),
        test_cases=[T("assert len(a) == 4 and set(k) == {'conditions'}", "*a, **k")],
    ),
    rule("a generator passes", ["SELECT 1"], of_tests(SUCCESS, 1), test_cases=[T("assert False\nyield")]),
    rule("an async test passes", ["SELECT 1"], of_tests(SUCCESS, 1), test_cases=["async " + T("assert False")]),
    rule("no test_case at all", ["SELECT 1"], of_tests(WRONG, 1), test_cases=["x = 1"]),
    rule("another name than test_case", ["SELECT 1"], of_tests(WRONG, 1), test_cases=["def test_1(*a, **k): pass"]),
    rule("a syntax error", ["SELECT 1"], of_tests(WRONG, 1), test_cases=["def test_case(:"]),
    rule("an indented source", ["SELECT 1"], of_tests(WRONG, 1), test_cases=["    def test_case(*a, **k): pass"]),
    rule(
        "a class as test_case",
        ["SELECT 1"],
        of_tests(SUCCESS, 1),
        test_cases=["class test_case:\n    def __init__(self, *a, **k): pass"],
    ),
    rule("top level raises", ["SELECT 1"], of_tests(WRONG, 1), test_cases=["1/0\n" + T("pass")]),
    rule(
        """
        top level import is not seen
        """,
        ["SELECT 1"],
        of_tests(WRONG, 1),
        test_cases=["import re\n" + T("re.compile('x')")],
    ),
    rule(
        "a global import is",
        ["SELECT 1"],
        of_tests(SUCCESS, 1),
        test_cases=["global re\nimport re\n" + T("re.compile('x')")],
    ),
    rule(
        "recursion by name is not seen",
        ["SELECT 1"],
        of_tests(WRONG, 1),
        test_cases=["def f(n): return n and f(n-1)\n" + T("assert h(2) == 0", "a, b, c, d, conditions, h=f")],
    ),
    checked("datetime is not, date is", "date(2024, 1, 1)\ndatetime", WRONG),
    checked("own exceptions", "class E(Exception): pass\nraise E('x')", WRONG),
    checked("a bare exception class that is none", "raise BaseException('x')", NO_VERDICT),
    checked("sys.exit", "import sys\nsys.exit(0)", NO_VERDICT),
    checked("os._exit", "import os\nos._exit(0)", NO_VERDICT),
    checked("KeyboardInterrupt", "raise KeyboardInterrupt", NO_VERDICT),
    checked("annotations are evaluated", "def f(x: undefined_name): pass", WRONG),
    checked("asserts hold", "assert False", WRONG),
    checked("stdout is text in memory", "import sys\nprint('\\ud800')\nassert sys.stdout.getvalue() == '\\ud800\\n'"),
    checked(
        "perform_query's two results",
        "rows, c = perform_query_on_sqlite_databases('SELECT 3', db_path, conn)\nassert rows == [(3,)] and c is conn",
    ),
    checked(
        "perform_query without a connection",
        """
        rows, c = perform_query_on_sqlite_databases('SELECT count(*) FROM loan', db_path)
        assert rows == [(3,)] and c is not conn
        c.close()
        """,
    ),
    checked(
        "execute_queries without a connection",
        "assert execute_queries(['CREATE TEMP TABLE q(a)', 'SELECT count(*) FROM q'], db_path, None)[0] == [(0,)]",
    ),
    checked(
        "the message on demand",
        """
        got = execute_queries('SELECT x', db_path, conn, return_error=True)
        assert got == (None, True, False, 'no such column: x')
        """,
    ),
    checked(
        "the last good result with an error",
        "assert execute_queries(['SELECT 1', 'SELECT nope', 'SELECT 2'], db_path, conn) == ([(1,)], True, False)",
    ),
    checked(
        "open transaction: not run, not rolled back",
        """
        conn.execute('INSERT INTO nobody VALUES (1)')
        r, e, t, m = execute_queries('SELECT 1', db_path, conn, return_error=True)
        assert e and 'Safety level' in m and conn.in_transaction
        """,
    ),
    checked(
        "a keyword check",
        """
        assert check_sql_function_usage(pred_sqls, ['selec', 'T 1']) == 1
        assert check_sql_function_usage(pred_sqls, ['x']) == 0 and check_sql_function_usage([], []) == 0
        """,
    ),
    checked("the helper module by name", "import sqlite_test_utils\nassert sqlite_test_utils.ex_base is ex_base"),
    checked(
        "qep always raises",
        """
        import sqlite_test_utils as u
        try:
            u.performance_compare_by_qep(['SELECT 1', 'SELECT 2'], ['SELECT 1'], db_path, conn)
        except Exception as e:
            assert 'cannot rollback' in str(e)
        else:
            assert 0
        """,
    ),
    checked(
        "a row factory reaches the helpers",
        """
        import sqlite3
        conn.row_factory = sqlite3.Row
        rows, _, _ = execute_queries('SELECT 1 AS one', db_path, conn)
        assert rows[0]['one'] == 1
        """,
    ),
    checked(
        "all that a connection has",
        """
        assert any('CREATE TABLE book' in s for s in conn.iterdump())
        import sqlite3
        b = sqlite3.connect(':memory:')
        conn.backup(b)
        assert b.execute('SELECT count(*) FROM book').fetchone() == (4,)
        conn.create_function('twice', 1, lambda x: 2 * x)
        assert execute_queries('SELECT twice(4)', db_path, conn)[0] == [(8,)]
        conn.set_authorizer(None)
        b.close()
        """,
    ),
    checked(
        "dates and decimals",
        """
        from decimal import Decimal
        from datetime import datetime
        got = preprocess_results([(date(2024, 5, 6), Decimal('2.345'), [1.005, {'b': 2.349}])])
        assert got == [('2024-05-06', Decimal('2.35'), '[1.0, {"b": 2.35}]')], got
        """,
    ),
    checked("lone surrogates travel", "assert sol_sqls == ['\\ud83d', '\\udc80x']", sol=("\ud83d", "\udc80x")),
    checked(
        "a subprocess",
        """
        import subprocess, sys
        assert subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True).stdout == b'3\\n'
        """,
    ),
    checked("temporary files", "import tempfile\nwith tempfile.NamedTemporaryFile() as f:\n    f.write(b'x')"),
    checked(
        "threads",
        """
        import threading
        seen = []
        t = threading.Thread(target=seen.append, args=(1,))
        t.start()
        t.join()
        assert seen == [1]
        """,
    ),
    checked(
        "a child that is waited for",
        "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nassert os.waitpid(pid, 0)[1] == 0",
    ),
    checked("a child that runs on", "import os\nos.fork()"),
    checked("descriptors closed", "import os\nos.closerange(3, 4096)"),
    checked(
        "output in plenty",
        "import os\nfor _ in range(40):\n    os.write(1, b'x' * 65536)\n    os.write(2, b'x' * 65536)",
    ),
    checked(
        "an exception that cannot be printed",
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        WRONG,
    ),
    checked("memory runs out", "x = bytearray(1 << 40)", WRONG),
    checked("recursion", "def f(): f()\nf()", WRONG),
]
