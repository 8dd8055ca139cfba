"""How the server stores what may be large."""

from __future__ import annotations

import pytest
from django.db import connection

LARGE = [
    ("runs_checkpoint", "output"),
    ("runs_checkpoint", "state"),
    ("runs_decision", "result"),
    ("runs_effect", "result"),
]
_HAS_LZ4 = "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
_COMPRESSION = "SELECT attcompression FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s"


@pytest.mark.engine
@pytest.mark.django_db
@pytest.mark.parametrize(("table", "column"), LARGE)
def test_large_texts_are_compressed_the_fast_way_where_the_server_has_it(table, column):
    with connection.cursor() as cursor:
        cursor.execute(_HAS_LZ4)
        wanted = "l" if cursor.fetchone()[0] else ""
        cursor.execute(_COMPRESSION, [table, column])
        assert cursor.fetchone()[0] == wanted
