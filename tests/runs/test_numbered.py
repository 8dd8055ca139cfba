"""Statements with names become statements with numbers."""

from __future__ import annotations

from runs.numbered import numbered


def test_each_name_has_one_number_and_doubled_percents_are_one():
    query, names = numbered("SELECT %(b)s, %(a)s::int + %(b)s, format('%%s of %%L', 1) LIKE 'a%%'")
    assert query == b"SELECT $1, $2::int + $1, format('%s of %L', 1) LIKE 'a%'"
    assert names == ("b", "a")
