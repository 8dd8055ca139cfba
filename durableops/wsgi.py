"""The WSGI entry point for servers such as gunicorn; nothing else lives here."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableops.settings")

application = get_wsgi_application()
