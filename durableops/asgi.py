"""The ASGI entry point for servers such as uvicorn; nothing else lives here."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")

application = get_asgi_application()
