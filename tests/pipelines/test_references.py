"""The tables that a query reads are found without Spark."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.references import (
    DEPTH_MAX,
    Reference,
    TooDeep,
    has_subquery,
    references_in,
    statement_in,
    tables_in,
)

QUERIES = {
    "SELECT * FROM orders": ("orders",),
    "select * from orders o where o.amount > 1": ("orders",),
    "SELECT * FROM orders, products p, countries AS c WHERE a = b": ("orders", "products", "countries"),
    "SELECT a, b FROM x ORDER BY a, b": ("x",),
    "SELECT a, b FROM x GROUP BY a, b HAVING c > 1 ORDER BY d, e": ("x",),
    "SELECT * FROM a JOIN b ON a.id = b.id LEFT OUTER JOIN c USING (id), d": ("a", "b", "c", "d"),
    "SELECT * FROM a CROSS JOIN b NATURAL JOIN c LEFT ANTI JOIN d": ("a", "b", "c", "d"),
    "SELECT * FROM (a JOIN (b CROSS JOIN c) ON true)": ("a", "b", "c"),
    "SELECT * FROM ((SELECT * FROM a) x JOIN b ON x.i = b.i)": ("a", "b"),
    "SELECT * FROM (SELECT * FROM (SELECT 1 FROM deep)) t": ("deep",),
    "(SELECT * FROM a) UNION ALL (SELECT * FROM b)": ("a", "b"),
    "SELECT * FROM a UNION SELECT * FROM b EXCEPT SELECT * FROM c INTERSECT TABLE d": ("a", "b", "c", "d"),
    "TABLE orders": ("orders",),
    "TABLE a UNION ALL TABLE b": ("a", "b"),
    "FROM orders SELECT product, count(*) GROUP BY product": ("orders",),
    "FROM orders |> WHERE a > 1 |> JOIN products USING (p) |> SELECT a, b": ("orders", "products"),
    "SELECT * FROM a WHERE id IN (SELECT id FROM b WHERE EXISTS (SELECT 1 FROM c))": ("a", "b", "c"),
    "SELECT (SELECT max(x) FROM b) + 1 AS m, coalesce((SELECT 1 FROM c), 2) FROM a": ("b", "c", "a"),
    # Names of WITH are no tables, as far as they reach.
    "WITH t AS (SELECT * FROM orders) SELECT * FROM t JOIN products": ("orders", "products"),
    "WITH a AS (SELECT 1 FROM x), b (c, d) AS (SELECT * FROM A) SELECT * FROM b, a": ("x",),
    "WITH orders AS (SELECT * FROM orders WHERE ok) SELECT * FROM orders": ("orders",),
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT * FROM t": (),
    "SELECT * FROM (WITH t AS (SELECT * FROM a) SELECT * FROM t) x JOIN t": ("a", "t"),
    "WITH t AS (WITH u AS (SELECT * FROM a) SELECT * FROM u) SELECT * FROM t, u": ("a", "u"),
    "WITH t AS (SELECT 1) SELECT * FROM x.t": ("x.t",),
    "SELECT a, count(*) FROM x GROUP BY a WITH ROLLUP": ("x",),
    # Functions, values and views give rows and are no tables.
    "SELECT * FROM range(10)": (),
    "SELECT * FROM range(10) r, orders": ("orders",),
    "SELECT * FROM explode(array(1, 2)) AS t(a), orders": ("orders",),
    "SELECT * FROM some_function(TABLE(orders), 5)": ("orders",),
    "SELECT * FROM some_function(data => TABLE(SELECT * FROM orders))": ("orders",),
    "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(n, s)": (),
    "SELECT * FROM VALUES (1), (2) t, orders": ("orders",),
    "SELECT * FROM VALUES 1, 2 AS t(n) JOIN orders": ("orders",),
    "SELECT * FROM (VALUES (1), (2)) t JOIN orders": ("orders",),
    "VALUES (1), (2)": (),
    "SELECT k, v FROM orders LATERAL VIEW explode(m) e AS k, v": ("orders",),
    "SELECT * FROM a, b LATERAL VIEW OUTER explode(m) e AS k, v WHERE x": ("a", "b"),
    "SELECT * FROM orders o, LATERAL (SELECT * FROM items i WHERE i.id = o.id)": ("orders", "items"),
    "SELECT * FROM orders o JOIN LATERAL explode(o.items) AS i": ("orders",),
    "SELECT * FROM orders TABLESAMPLE (10 PERCENT) s, b": ("orders", "b"),
    "SELECT * FROM orders PIVOT (sum(x) FOR y IN ('a', 'b')), b": ("orders", "b"),
    "SELECT * FROM orders TIMESTAMP AS OF '2026-01-01'": ("orders",),
    # FROM that is not followed by a relation.
    "SELECT extract(year FROM t), trim(BOTH 'x' FROM s), substring(s FROM 2 FOR 3) FROM x": ("x",),
    "SELECT a IS DISTINCT FROM b, a IS NOT DISTINCT FROM c FROM x": ("x",),
    "SELECT DISTINCT a FROM x": ("x",),
    "SELECT t.from, t.join FROM t": ("t",),
    "SELECT * EXCEPT (a, b) FROM x": ("x",),
    # Streams.
    "SELECT * FROM STREAM orders": ("orders",),
    "SELECT * FROM stream(orders) o JOIN products": ("orders", "products"),
    "SELECT * FROM STREAM(`my orders`)": ("my orders",),
    "SELECT * FROM STREAM range(10)": (),
    "SELECT * FROM orders WATERMARK t DELAY OF INTERVAL 2 MINUTES AS o, b": ("orders", "b"),
    # Names.
    "SELECT * FROM `orders`": ("orders",),
    "SELECT * FROM `from`": ("from",),
    "SELECT * FROM `a``b`, c": ("a`b", "c"),
    "SELECT * FROM spark_catalog.`default`.orders o": ("spark_catalog.default.orders",),
    "SELECT * FROM parquet.`/data/x`, orders": ("parquet./data/x", "orders"),
    "SELECT * FROM Orders JOIN ORDERS JOIN orders": ("Orders",),
    "SELECT * FROM `bestellungen_größe`": ("bestellungen_größe",),
    # What looks like a relation and is text or comment.
    "SELECT 'x FROM a' AS s FROM b": ("b",),
    "SELECT 'it''s FROM a' FROM b": ("b",),
    r"SELECT 'it\'s FROM a' FROM b": ("b",),
    'SELECT "he said \\" FROM a" FROM b': ("b",),
    r"SELECT r'c:\' FROM b": ("b",),
    "SELECT * -- FROM a\nFROM b": ("b",),
    "SELECT * /* FROM a /* inner */ FROM c */ FROM b": ("b",),
    "SELECT /*+ BROADCAST(a) */ * FROM b": ("b",),
    "SELECT * FROM/**/b": ("b",),
    "SELECT 1 - -1 FROM b": ("b",),
    "SELECT * FROM b;": ("b",),
}
REFUSED = {
    # Not for us to judge: what can be found is found.
    "": (),
    "SELECT * FROM": (),
    "SELECT * FROM a JOIN": ("a",),
    "SELECT * FROM (a": ("a",),
    "SELECT * FROM a) JOIN b": ("a", "b"),
    "WITH t": (),
    "WITH t AS SELECT": (),
    "SELECT * FROM a /* never closed": ("a",),
    "SELECT 'never closed FROM a": ("a",),
}


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_reads_the_tables_that_it_names_as_relations(sql: str) -> None:
    assert tables_in(sql) == QUERIES[sql]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_spark_will_refuse_is_passed_over(sql: str) -> None:
    assert tables_in(sql) == REFUSED[sql]


@pytest.mark.slow
def test_sparks_own_parser_finds_the_same_relations(spark: Any) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    differences = {}
    for sql, tables in QUERIES.items():
        plan = parser.parsePlan(sql).toString()
        # To the parser, names that WITH defines are relations like others; they are told apart later.
        defined = {"a", "b", "t", "u"} if sql.startswith("WITH") else set()
        found = {name.replace(", ", ".").lower() for name in re.findall(r"UnresolvedRelation \[([^\]]*)\]", plan)}
        if found - defined != {name.lower() for name in tables} - defined:
            differences[sql] = found

    assert differences == {}


def test_a_table_is_found_in_its_line() -> None:
    sql = "SELECT 'a\nb' -- c\n/* d\n e */ FROM one\nJOIN `two` USING (id)\n, one"

    assert references_in(sql) == (Reference("one", 4), Reference("two", 5))


@pytest.mark.parametrize(
    "behind", ["", ";", " ;\n", "; -- the end", ";\n/* that /* was */ it */\n", "\n-- no more;\n", ";;"]
)
def test_what_stands_behind_a_query_is_left_out(behind: str) -> None:
    assert statement_in(f"SELECT ';' -- a;\nFROM a{behind}") == "SELECT ';' -- a;\nFROM a"


@pytest.mark.parametrize("sql", ["SELECT 1; SELECT 2", "SELECT 1 /* never closed;"])
def test_what_spark_should_refuse_is_kept(sql: str) -> None:
    assert statement_in(sql) == sql


@pytest.mark.parametrize(
    "expression", ["id IN (SELECT 1)", "EXISTS ( -- why\n select 1)", "a = (WITH t AS (SELECT 1) SELECT * FROM t)"]
)
def test_an_expression_may_ask_a_query(expression: str) -> None:
    assert has_subquery(expression)


@pytest.mark.parametrize(
    "expression", ["(selected > 1)", "x = '(SELECT 1)'", "(`select` = 1)", "a IN (1, 2) AND map('a', 1)['a'] > (b)"]
)
def test_most_expressions_ask_none(expression: str) -> None:
    assert not has_subquery(expression)


def test_brackets_are_followed_to_some_depth_and_no_further() -> None:
    def nested(depth: int) -> str:
        return "\n" + "(" * depth + "SELECT * FROM a" + ")" * depth

    assert tables_in(nested(DEPTH_MAX - 1)) == ("a",)
    with pytest.raises(TooDeep) as caught:
        tables_in(nested(100_000))
    assert caught.value.line == 2


# --- queries that are made up -------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "t1", "Orders", "`x y`"])
NOISE = st.sampled_from([" ", "\n", " -- FROM noise\n", " /* JOIN noise /* , noise */ */ ", "\t"])


@st.composite
def queries(draw: st.DrawFn, depth: int = 3) -> tuple[str, set[str]]:
    """A query, and what it reads."""
    parts, read = [], set[str]()
    for _ in range(draw(st.integers(1, 3))):
        text, names = draw(relations(depth))
        parts.append(text)
        read |= names
    joined = parts[0]
    for part in parts[1:]:
        joined += draw(st.sampled_from([", ", " JOIN ", " LEFT JOIN ", "\nCROSS\nJOIN "])) + part
    columns = draw(st.sampled_from(["*", "'FROM noise'", "x, y", "f(x, ', noise')", "extract(day FROM noise)"]))
    where = draw(st.sampled_from(["", " WHERE x IS DISTINCT FROM y", " GROUP BY x, y", " LIMIT 5"]))
    space = draw(NOISE)
    keyword = draw(st.sampled_from(["FROM", "from", "From"]))
    return f"SELECT {columns}{space}{keyword}{draw(NOISE)}{joined}{where}", read


@st.composite
def relations(draw: st.DrawFn, depth: int) -> tuple[str, set[str]]:
    kind = draw(st.integers(0, 5 if depth > 0 else 2))
    alias = draw(st.sampled_from(["", " z", " AS z"]))
    if kind == 0:
        return f"range(1, 2){alias}", set()
    if kind <= 2:
        name = draw(NAMES)
        form = draw(st.sampled_from(["{}", "STREAM {}", "STREAM({})", "({})"]))
        return form.format(name) + alias, {name.strip("`").lower()}
    text, read = draw(queries(depth - 1))
    if kind == 3:
        return f"({text}){alias}", read
    if kind == 4:
        other, more = draw(queries(depth - 1))
        return f"({text} UNION ALL {other}){alias}", read | more
    # `hidden` is a name of WITH inside these brackets and nowhere else.
    return f"(WITH hidden AS ({text}) SELECT * FROM hidden){alias}", read


@given(queries())
def test_every_table_of_a_query_is_found_and_nothing_else(query: tuple[str, set[str]]) -> None:
    sql, read = query

    assert {name.lower() for name in tables_in(sql)} == read


@given(st.text(alphabet="aFROMJINWTHSELC,()'`\"\\-/*.\n ", max_size=80))
def test_no_text_at_all_breaks_the_search(text: str) -> None:
    assert all(reference.line >= 1 for reference in references_in(text))
