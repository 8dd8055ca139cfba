"""What queues over one table share: counted up to a cap, paged by a keyset over one index range for each tenant."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from django.db import connection
from django.db.models import QuerySet
from django.http import Http404

from durableops.console.access import Access
from durableops.console.inbox import frame
from durableops.console.inbox.frame import Asked, Entry, Page, Queue
from runs.models import Tenant

_PAGE = """
SELECT x.id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT {columns} FROM {table} q
    WHERE q.tenant_id = t.id AND {open} AND ({columns}) > ({after}) {mine} ORDER BY {columns} LIMIT %(limit)s) x
ORDER BY {outer} LIMIT %(limit)s"""
_COUNT = """
(SELECT count(*) FROM (
    SELECT 1 FROM {table} q WHERE q.tenant_id = ANY(%(tenants)s::int[]) AND {open} LIMIT %(cap)s) x)"""


class KeysetQueue(Queue):
    """A queue whose entries are rows of a table that name their tenant."""

    table: ClassVar[str]
    open: ClassVar[str]
    """Which rows wait for a person: a condition on the row `q` that an index of open ones knows."""
    since: ClassVar[str] = ""
    """The column they are ordered by, before their number; empty where the number alone says it."""
    mine: ClassVar[str] = "q.claimed_by = %(me)s"
    """Which of them somebody is on."""

    @abstractmethod
    def rows(self) -> QuerySet[Any]:
        """The rows with whatever an entry shows of them."""

    @abstractmethod
    def entries(self, rows: Sequence[Any], asked: Asked) -> list[Entry]:
        """The entries of a page, in the order of its rows."""

    def count(self, tenants: Sequence[int]) -> int:
        return counts([self], tenants)[self.name]

    def page(self, asked: Asked) -> Page:
        """Up to PER_PAGE entries, oldest first."""
        ids = self._ids(asked)
        shown = ids[: frame.PER_PAGE]
        known = self.rows().in_bulk(shown)
        found = [known[pk] for pk in shown if pk in known]
        following = self._cursor(found[-1]) if len(ids) > frame.PER_PAGE and found else ""
        return Page(entries=self.entries(found, asked), following=following)

    def _ids(self, asked: Asked) -> list[int]:
        since, after = self._parsed(asked.cursor)
        columns = f"q.{self.since}, q.id" if self.since else "q.id"
        sql = _PAGE.format(
            table=self.table, open=self.open, columns=columns, outer=columns.replace("q.", "x."),
            after="%(since)s, %(after)s" if self.since else "%(after)s",
            mine=f"AND {self.mine}" if asked.mine and self.can_be_claimed else "",
        )  # fmt: skip
        params = {
            "tenants": list(asked.tenants), "since": since, "after": after, "limit": frame.PER_PAGE + 1,
            "me": asked.access.actor,
        }  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            return [row[0] for row in cursor.fetchall()]

    def _cursor(self, row: Any) -> str:
        return f"{getattr(row, self.since).isoformat()}~{row.pk}" if self.since else str(row.pk)

    def _parsed(self, cursor: str) -> tuple[datetime | str, int]:
        """Where a page begins; one that makes no sense begins at the beginning."""
        since, _, after = cursor.rpartition("~")
        number = int(after) if after.isdecimal() and len(after) < 19 else None
        if not self.since:
            return "", number or 0
        try:
            return (datetime.fromisoformat(since), number) if number is not None else ("-infinity", 0)
        except ValueError:
            return "-infinity", 0


class ClaimedQueue(KeysetQueue):
    """One whose entries are claimed and let go of by verbs of the engine."""

    claims: ClassVar[Callable[..., Any]]
    unclaims: ClassVar[Callable[..., Any]]

    def claim(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        type(self).claims(int(key), tenant=self._tenant_of(key, tenants), actor=access.actor)

    def release(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        type(self).unclaims(int(key), tenant=self._tenant_of(key, tenants), actor=access.actor)

    def _tenant_of(self, key: str, tenants: Sequence[int]) -> Tenant:
        """The tenant of an entry, if it is one of these. Raises Http404."""
        number = key if key.isdecimal() and len(key) < 19 else 0
        found = Tenant.objects.filter(pk__in=self.rows().filter(pk=number).values("tenant")).first()
        if found is None or found.pk not in tenants:
            raise Http404("There is nothing of this kind here.")
        return found


def counts(queues: Sequence[KeysetQueue], tenants: Sequence[int]) -> dict[str, int]:
    """How many entries each queue has, counted up to `frame.COUNT_CAP + 1`, in one statement."""
    parts = ", ".join(_COUNT.format(table=queue.table, open=queue.open) for queue in queues)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {parts}", {"tenants": list(tenants), "cap": frame.COUNT_CAP + 1})
        return dict(zip([queue.name for queue in queues], cursor.fetchone(), strict=True))
