"""How the web processes' connections differ from others. The console's statements live with what they are for."""

from __future__ import annotations

from typing import Any

from django.db.backends.signals import connection_created
from django.dispatch import receiver


@receiver(connection_created, dispatch_uid="durableops.console.without_jit")
def without_jit(sender: Any, connection: Any, **extra: Any) -> None:
    """Pages ask bounded questions whose estimates look large: compiling one took 65 ms, answering it 4 ms."""
    with connection.cursor() as cursor:
        cursor.execute("SET jit = off")
