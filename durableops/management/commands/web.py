"""`manage.py web`: serve the console and the API with gunicorn. What is served is decided in urls.py."""

from __future__ import annotations

import json
import socket
from typing import Any

from django.core.handlers.wsgi import WSGIHandler
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.wsgi import get_wsgi_application
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

DEFAULT_BIND = "127.0.0.1:8000"


class Server(BaseApplication):  # type: ignore[misc]
    """Gunicorn, told everything here instead of by its own command line."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> WSGIHandler:
        return get_wsgi_application()


class Command(BaseCommand):
    help = "Serve the console and the API."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--bind", metavar="HOST:PORT", help=f"where to listen (default {DEFAULT_BIND})")
        parser.add_argument("--port", type=int, help="port on 127.0.0.1; 0 takes a free one")
        parser.add_argument("--processes", type=int, default=1)
        parser.add_argument("--threads", type=int, default=8, help="requests at once in each process")
        parser.add_argument("--json", action="store_true", help="print one line with the address once it listens")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["bind"] and options["port"] is not None:
            raise CommandError("both --bind and --port were given; give one.")
        bind = options["bind"] or (DEFAULT_BIND if options["port"] is None else f"127.0.0.1:{options['port']}")
        listening = _listen(bind)
        host, port = listening.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        print(json.dumps({"url": url}) if options["json"] else f"console: {url}", flush=True)
        Server(
            {
                "bind": [f"fd://{listening.detach()}"],
                "workers": options["processes"],
                "worker_class": "gthread",
                "threads": options["threads"],
                "graceful_timeout": 10,
                "proc_name": "durableops-web",
                "loglevel": "warning",
                "control_socket_disable": True,
            }
        ).run()


def _listen(bind: str) -> socket.socket:
    """Open the socket ourselves: it says which port was free, and a taken one is told in a sentence."""
    host, _, port = bind.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise CommandError(f"--bind {bind!r} is not HOST:PORT, such as {DEFAULT_BIND}.")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]") or "127.0.0.1", int(port)))
        listening.listen(128)
    except OSError as problem:
        listening.close()
        raise CommandError(f"{bind} cannot be listened on: {problem.strerror}. Choose another with --bind.") from None
    listening.set_inheritable(True)
    return listening
