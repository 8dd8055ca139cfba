"""Booking the invoices of a month in a ledger that deduplicates nothing: what is sent, doubted, settled and undone."""

from __future__ import annotations
