"""The page that people look at to see whether an entry was booked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Any

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Ledger</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ border-bottom: 1px solid #8884; padding: .35rem .75rem .35rem 0; text-align: left; }}
.amount {{ font-variant-numeric: tabular-nums; text-align: right; }}
</style></head><body>
<h1>Ledger</h1>
<p>Whatever is sent is booked, each time. The newest {limit} of {total:,} entries; nothing else is known about them.</p>
<table><thead><tr><th>Entry</th><th>Booked (UTC)</th><th>Account</th><th class="amount">Amount</th><th>Text</th>
<th>Reverses</th></tr></thead><tbody>
{rows}
</tbody></table></body></html>
"""
ROW = (
    '<tr><td>{id}</td><td>{at}</td><td>{account}</td><td class="amount">{amount}</td><td>{text}</td>'
    "<td>{reverses}</td></tr>"
)


def page(entries: Iterable[dict[str, Any]], *, total: int, limit: int) -> str:
    """The whole page."""
    rows = "\n".join(map(_row, entries)) or '<tr><td colspan="6">Nothing was booked yet.</td></tr>'
    return PAGE.format(rows=rows, total=total, limit=limit)


def _row(entry: dict[str, Any]) -> str:
    return ROW.format(
        id=f"E-{entry['id']}",
        at=f"{datetime.fromtimestamp(entry['booked_at'], UTC):%Y-%m-%d %H:%M:%S}",
        account=escape(entry["account"]),
        amount=money(entry["amount"]),
        text=escape(entry["text"]),
        reverses=f"E-{entry['reverses']}" if entry["reverses"] else "",
    )


def money(cents: int) -> str:
    """Cents as people write them."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"
