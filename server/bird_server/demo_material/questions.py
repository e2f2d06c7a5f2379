"""Tasks whose answer is a result: Query, Efficiency and Personalization. Written for this project."""

from __future__ import annotations

from bird_server.demo_material.task import DemoTask, demo_task

_USES_AN_INDEX = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    assert ex_base(pred_sqls, sol_sqls, db_path, conn, conditions) == 1, "the rows differ"
    plan = " ".join(str(row[3]) for row in conn.execute("EXPLAIN QUERY PLAN " + pred_sqls[-1]).fetchall())
    assert "SEARCH" in plan and "repair_opened_on" in plan, plan
"""

_NOT_ROW_BY_ROW = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    assert ex_base(pred_sqls, sol_sqls, db_path, conn, conditions) == 1, "the rows differ"
    plan = " ".join(str(row[3]) for row in conn.execute("EXPLAIN QUERY PLAN " + pred_sqls[-1]).fetchall())
    assert "CORRELATED" not in plan, plan
"""

_CLIMBS_THE_WHOLE_LINE = """
def test_case(pred_sqls, sol_sqls, db_path, conn, conditions):
    assert check_sql_function_usage(pred_sqls, ["recursive"]) == 1, "it must follow the line however long it grows"
    assert ex_base(pred_sqls, sol_sqls, db_path, conn, conditions) == 1, "the rows differ"
"""

QUESTIONS: list[DemoTask] = [
    demo_task(
        "coop_query_workload",
        "Query",
        "I want one line per mechanic with the number of repairs that are still open or waiting, so that I can see "
        "who has time. Our two newest mechanics have nothing yet and should show up with a 0, but my query leaves "
        "them out. What am I missing? Columns: name, number.",
        issue="SELECT m.name, COUNT(*) FROM mechanic m JOIN repair r ON r.mechanic_id = m.mechanic_id "
        "WHERE r.status IN ('open', 'waiting') GROUP BY m.mechanic_id",
        gold="SELECT m.name, COUNT(r.repair_id) FROM mechanic m LEFT JOIN repair r ON r.mechanic_id = m.mechanic_id "
        "AND r.status IN ('open', 'waiting') GROUP BY m.mechanic_id",
        explore=["SELECT status, COUNT(*) FROM repair GROUP BY status", "SELECT COUNT(*) FROM mechanic"],
        wrong="SELECT m.name, COUNT(*) FROM mechanic m LEFT JOIN repair r ON r.mechanic_id = m.mechanic_id "
        "AND r.status IN ('open', 'waiting') GROUP BY m.mechanic_id",
        broken="SELECT m.name, COUNT(r.id) FROM mechanic m LEFT JOIN repair r ON r.mechanic = m.mechanic_id GROUP BY 1",
    ),
    demo_task(
        "coop_query_top_payers",
        "Query",
        "Who are the ten members that have paid us most, the biggest first? I get absurd sums, several times what is "
        "in the till. I joined the parts because I thought I would need them. Columns: name, sum; equal sums by "
        "member_id.",
        issue="SELECT m.name, SUM(p.amount) AS total FROM member m JOIN bike b ON b.member_id = m.member_id "
        "JOIN repair r ON r.bike_id = b.bike_id JOIN repair_part rp ON rp.repair_id = r.repair_id "
        "JOIN payment p ON p.repair_id = r.repair_id GROUP BY m.member_id ORDER BY total DESC, m.member_id LIMIT 10",
        gold="SELECT m.name, SUM(p.amount) AS total FROM member m JOIN bike b ON b.member_id = m.member_id "
        "JOIN repair r ON r.bike_id = b.bike_id JOIN payment p ON p.repair_id = r.repair_id "
        "GROUP BY m.member_id ORDER BY total DESC, m.member_id LIMIT 10",
        explore=["SELECT SUM(amount) FROM payment", "PRAGMA foreign_key_list(payment)"],
        wrong="SELECT m.name, SUM(p.amount) AS total FROM member m JOIN bike b ON b.member_id = m.member_id "
        "JOIN repair r ON r.bike_id = b.bike_id JOIN payment p ON p.repair_id = r.repair_id "
        "GROUP BY m.member_id ORDER BY total LIMIT 10",
        broken="SELECT name, SUM(amount) AS total FROM member JOIN payment USING (member_id) GROUP BY 1 ORDER BY 2 DSC",
        conditions={"order": True},
    ),
    demo_task(
        "coop_query_last_visit",
        "Query",
        "For every bike that was ever here I need its latest repair only: bike_id, status and opened_on. When two "
        "began on the same day, take the one with the higher repair_id. My query gives several lines for many bikes.",
        issue="SELECT bike_id, status, MAX(opened_on) FROM repair GROUP BY bike_id, status",
        gold="SELECT bike_id, status, opened_on FROM (SELECT bike_id, status, opened_on, ROW_NUMBER() OVER "
        "(PARTITION BY bike_id ORDER BY opened_on DESC, repair_id DESC) AS place FROM repair) WHERE place = 1",
        explore=["SELECT COUNT(DISTINCT bike_id), COUNT(*) FROM repair", "SELECT * FROM repair WHERE bike_id = 7"],
        wrong="SELECT bike_id, status, opened_on FROM (SELECT bike_id, status, opened_on, ROW_NUMBER() OVER "
        "(PARTITION BY bike_id ORDER BY opened_on, repair_id) AS place FROM repair) WHERE place = 1",
        broken="SELECT bike_id, status, ROW_NUMBER() OVER (PARTITION bike_id ORDER BY opened_on DESC) FROM repair",
    ),
    demo_task(
        "coop_query_newsletter",
        "Query",
        "The German newsletter should go to everybody who has newsletter switched on in their preferences and reads "
        "German ('de'). I ask for name and email and get nothing at all, though I know dozens who are signed up.",
        issue="SELECT name, email FROM member WHERE json_extract(preferences, '$.newsletter') = 'true' "
        "AND json_extract(preferences, '$.language') = 'de'",
        gold="SELECT name, email FROM member WHERE json_extract(preferences, '$.newsletter') = 1 "
        "AND json_extract(preferences, '$.language') = 'de'",
        explore=[
            "SELECT preferences FROM member LIMIT 5",
            "SELECT DISTINCT json_type(preferences, '$.newsletter') FROM member",
        ],
        wrong="SELECT name, email FROM member WHERE preferences LIKE '%newsletter%' AND preferences LIKE '%\"de\"%'",
        broken="SELECT name, email FROM member WHERE json_get(preferences, 'newsletter')",
    ),
    demo_task(
        "coop_query_without_pupils",
        "Query",
        "Which mechanics mentor nobody? I only want their names. The list that I get is empty, which cannot be.",
        issue="SELECT name FROM mechanic WHERE mechanic_id NOT IN (SELECT mentor_id FROM mechanic)",
        gold="SELECT m.name FROM mechanic m WHERE NOT EXISTS "
        "(SELECT 1 FROM mechanic pupil WHERE pupil.mentor_id = m.mechanic_id)",
        explore=["SELECT mechanic_id, name, mentor_id FROM mechanic"],
        wrong="SELECT name FROM mechanic WHERE mentor_id IS NULL",
        broken="SELEC name FROM mechanic WHERE mechanic_id NOT IN (1, 2)",
    ),
    demo_task(
        "coop_query_lineage",
        "Query",
        "For each mechanic I want the number of people above them: their mentor, the mentor's mentor and so on, 0 for "
        "those without any. My query never says more than 1. Columns: name, number.",
        issue="SELECT m.name, COUNT(mentor.mechanic_id) FROM mechanic m "
        "LEFT JOIN mechanic mentor ON mentor.mechanic_id = m.mentor_id GROUP BY m.mechanic_id",
        gold="WITH RECURSIVE line(mechanic_id, above) AS (SELECT mechanic_id, 0 FROM mechanic WHERE mentor_id IS NULL "
        "UNION ALL SELECT m.mechanic_id, line.above + 1 FROM mechanic m JOIN line ON m.mentor_id = line.mechanic_id) "
        "SELECT m.name, line.above FROM line JOIN mechanic m ON m.mechanic_id = line.mechanic_id",
        explore=["SELECT mechanic_id, mentor_id FROM mechanic ORDER BY mentor_id"],
        wrong="WITH RECURSIVE line(mechanic_id, above) AS (SELECT mechanic_id, 1 FROM mechanic WHERE mentor_id IS NULL "
        "UNION ALL SELECT m.mechanic_id, line.above + 1 FROM mechanic m JOIN line ON m.mentor_id = line.mechanic_id) "
        "SELECT m.name, line.above FROM line JOIN mechanic m ON m.mechanic_id = line.mechanic_id",
        broken="WITH RECURSIVE line(mechanic_id, above) SELECT mechanic_id, 0 FROM mechanic",
        tests=[_CLIMBS_THE_WHOLE_LINE],
    ),
    demo_task(
        "coop_speed_one_year",
        "Efficiency",
        "How many repairs were opened in 2022, per status? My query is right but reads the whole table, although "
        "there is an index on opened_on. I would like it to use that.",
        issue="SELECT status, COUNT(*) FROM repair WHERE strftime('%Y', opened_on) = '2022' GROUP BY status",
        gold="SELECT status, COUNT(*) FROM repair WHERE opened_on >= '2022-01-01' AND opened_on < '2023-01-01' "
        "GROUP BY status",
        explore=[
            "PRAGMA index_list(repair)",
            "EXPLAIN QUERY PLAN SELECT status, COUNT(*) FROM repair WHERE strftime('%Y', opened_on) = '2022' GROUP BY "
            "status",
        ],
        wrong="SELECT status, COUNT(*) FROM repair WHERE opened_on >= '2022-01-01' AND opened_on < '2022-12-01' "
        "GROUP BY status",
        broken="SELECT status, COUNT(*) FROM repair WHERE YEAR(opened_on) = 2022 GROUP BY status",
        tests=[_USES_AN_INDEX],
    ),
    demo_task(
        "coop_speed_cheapest_offer",
        "Efficiency",
        "For each part its sku and the cheapest price any supplier asks, empty where nobody offers it. It works, but "
        "the plan says CORRELATED: the offers are searched again for every part. Can it be done in one go?",
        issue="SELECT p.sku, (SELECT MIN(s.price) FROM supplier_part s WHERE s.part_id = p.part_id) FROM part p",
        gold="SELECT p.sku, offer.price FROM part p LEFT JOIN (SELECT part_id, MIN(price) AS price FROM supplier_part "
        "GROUP BY part_id) AS offer ON offer.part_id = p.part_id",
        explore=["SELECT COUNT(*), COUNT(DISTINCT part_id) FROM supplier_part", "SELECT COUNT(*) FROM part"],
        wrong="SELECT p.sku, MIN(s.price) FROM part p JOIN supplier_part s ON s.part_id = p.part_id GROUP BY p.part_id",
        broken="SELECT p.sku, MIN(s.price) FROM part p LEFT JOIN supplier_part s USING (part_id) GROUP part_id",
        tests=[_NOT_ROW_BY_ROW],
    ),
    demo_task(
        "coop_style_contact_line",
        "Personalization",
        "For the notice board I need one text per member: the name, a blank and the phone number, or the name "
        "followed by ' (no phone)'. Members without a phone come out as NULL.",
        issue="SELECT name || ' ' || phone FROM member",
        gold="SELECT name || COALESCE(' ' || phone, ' (no phone)') FROM member",
        explore=["SELECT COUNT(*), COUNT(phone) FROM member"],
        wrong="SELECT COALESCE(name || ' ' || phone, name) FROM member",
        broken="SELECT name || COALESCE(' ' || phone, ' (no phone) FROM member",
    ),
    demo_task(
        "coop_style_pivot",
        "Personalization",
        "One line per mechanic who has had repairs: name, number done, number cancelled, in columns. Both columns "
        "show the same number for everybody, all their repairs.",
        issue="SELECT m.name, COUNT(CASE WHEN r.status = 'done' THEN 1 ELSE 0 END), "
        "COUNT(CASE WHEN r.status = 'cancelled' THEN 1 ELSE 0 END) "
        "FROM mechanic m JOIN repair r ON r.mechanic_id = m.mechanic_id GROUP BY m.mechanic_id",
        gold="SELECT m.name, SUM(r.status = 'done'), SUM(r.status = 'cancelled') "
        "FROM mechanic m JOIN repair r ON r.mechanic_id = m.mechanic_id GROUP BY m.mechanic_id",
        explore=["SELECT mechanic_id, status, COUNT(*) FROM repair GROUP BY 1, 2 LIMIT 20"],
        wrong="SELECT m.name, SUM(r.status = 'cancelled'), SUM(r.status = 'done') "
        "FROM mechanic m JOIN repair r ON r.mechanic_id = m.mechanic_id GROUP BY m.mechanic_id",
        broken="SELECT m.name, SUM(CASE WHEN r.status = 'done' THEN 1 ELSE 0) FROM mechanic m JOIN repair r USING "
        "(mechanic_id)",
    ),
    demo_task(
        "coop_style_shares",
        "Personalization",
        "What share of our payments, by number, is cash, card and transfer? In percent with one decimal, please. I "
        "only get zeros. Columns: method, percent.",
        issue="SELECT method, ROUND(COUNT(*) / (SELECT COUNT(*) FROM payment) * 100, 1) FROM payment GROUP BY method",
        gold="SELECT method, ROUND(100.0 * COUNT(*) / (SELECT COUNT(*) FROM payment), 1) FROM payment GROUP BY method",
        explore=["SELECT method, COUNT(*), SUM(amount) FROM payment GROUP BY method"],
        wrong="SELECT method, ROUND(100.0 * SUM(amount) / (SELECT SUM(amount) FROM payment), 1) FROM payment GROUP BY "
        "method",
        broken="SELECT method, ROUND(100.0 * COUNT(*) / (SELECT COUNT(*) FROM payment, 1) FROM payment GROUP BY method",
    ),
]
