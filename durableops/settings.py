"""Django's settings, read once from the environment. The engine's knobs live in conf.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

from durableops.conf import ConfError, get_conf
from durableops.environment import complete

BASE_DIR = Path(__file__).resolve().parent.parent
ENVIRONMENT = complete(os.environ, checkout=BASE_DIR)
DEVELOPMENT_SECRET = "for-development-only-and-refused-in-production"  # noqa: S105

env = environ.Env()
env.ENVIRON = ENVIRONMENT

try:
    _CONF = get_conf()
except ConfError as problem:
    raise ImproperlyConfigured(str(problem)) from None

# Development has to be asked for: whoever says nothing gets the strict mode.
MODE = env.str("DURABLEOPS_ENV", "production")
PRODUCTION = MODE != "development"

SECRET_KEY = env.str("SECRET_KEY", "" if PRODUCTION else DEVELOPMENT_SECRET)
# Off by default in development too: it makes Django remember every statement, and workers make many.
DEBUG = env.bool("DEBUG", False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[] if PRODUCTION else ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
# The console of a demo explains itself and may kill workers (durableops/console/demo.py).
DEMO = env.bool("DURABLEOPS_DEMO", False)
DATABASE_URL = env.str("DATABASE_URL", "")
# The role that owns the tables; only commands that change the schema use it (manage.py).
DATABASE_OWNER_URL = env.str("DATABASE_OWNER_URL", "")
REDIS_URL = env.str("REDIS_URL", "")
for _name, _url, _schemes in (
    ("DATABASE_URL", DATABASE_URL, ("postgresql", "postgres")),
    ("DATABASE_OWNER_URL", DATABASE_OWNER_URL, ("postgresql", "postgres")),
    ("REDIS_URL", REDIS_URL, ("redis", "rediss", "unix")),
):
    if _url and _url.partition("://")[0] not in _schemes:  # it may hold a password, so it is not repeated
        raise ImproperlyConfigured(f"{_name} does not begin with {'://, '.join(_schemes)}://; give such an address.")


def _refusals() -> list[str]:
    """Say everything that makes this environment unfit for production."""
    found = []
    if MODE not in {"production", "development"}:
        found.append(f"DURABLEOPS_ENV is {MODE!r}: it wants production or development.")
    if len(SECRET_KEY) < 32 or SECRET_KEY == DEVELOPMENT_SECRET:
        found.append("SECRET_KEY is missing, shorter than 32 characters, or the development one: set a random one.")
    if DEBUG:
        found.append("DEBUG is on: it shows settings and data to anybody. Unset it.")
    if DEMO:
        found.append("DURABLEOPS_DEMO is on: it lets people kill workers from a page. Unset it.")
    if not ALLOWED_HOSTS or "*" in ALLOWED_HOSTS:
        found.append("ALLOWED_HOSTS is empty or '*': name the hosts this installation answers for.")
    found += [f"{name} is not set." for name in ("DATABASE_URL", "REDIS_URL") if not env.str(name, "")]
    return found


if PRODUCTION and (_found := _refusals()):
    raise ImproperlyConfigured(
        f"{MODE} refuses to start: {' '.join(_found)} (For development: DURABLEOPS_ENV=development, as `make` sets it.)"
    )

INSTALLED_APPS = [
    "runs",
    "durableops",
    *env.list("DURABLEOPS_APPS", default=[]),
    "django_htmx",
    "django_rq",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "durableops.urls"
WSGI_APPLICATION = "durableops.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {"console": "durableops.console.template_tags"},
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]


def database(url: str, *, options: str = "") -> dict[str, Any]:
    """Turn a URL into one of Django's databases; a unix socket's folder may stand in `?host=`."""
    found: dict[str, Any] = env.db_url_config(url)
    chosen = found.setdefault("OPTIONS", {})
    found["HOST"] = chosen.pop("host", "") or found["HOST"]
    # A server that vanished without a word is noticed in seconds, not in the kernel's two hours.
    chosen.update(
        connect_timeout=10, keepalives_idle=10, keepalives_interval=5, keepalives_count=3, tcp_user_timeout=20_000
    )
    if options:
        chosen["options"] = options
    if not _CONF.prepare_statements:
        chosen["prepare_threshold"] = None
        found["DISABLE_SERVER_SIDE_CURSORS"] = True
    return {**found, "CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}


def _default_database() -> dict[str, Any]:
    url = DATABASE_URL or "postgresql:///durableops"
    if env.str("DURABLEOPS_DATABASE_ROLE", "application") == "owner":
        # A schema change gives up rather than making every reader queue behind it.
        return database(DATABASE_OWNER_URL or url, options="-c lock_timeout=5s")
    return database(url)


DATABASES = {"default": _default_database()}

# The role that migrations grant rights to (runs/grants.py); empty when one role does everything.
DATABASE_APPLICATION_ROLE = env.db_url_config(DATABASE_URL)["USER"] if DATABASE_URL and DATABASE_OWNER_URL else ""

# RQ carries bells only, as JSON: whoever can write to the broker must not be able to run code through it.
RQ_QUEUES = {
    _CONF.queue_name: {
        "URL": REDIS_URL or "redis://127.0.0.1:6379/0",
        "SERIALIZER": "rq.serializers.JSONSerializer",
        "DEFAULT_TIMEOUT": -1,
    }
}

# Artifacts of runs. Several hosts need a storage they share: set STORAGES in a settings module of your own.
MEDIA_ROOT = env.path("DURABLEOPS_FILES", str(BASE_DIR / ".durableops" / "files"))
# Nobody else on the machine reads them.
FILE_UPLOAD_PERMISSIONS = 0o640
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o750
# What raw prompts and temporary files are encrypted with, newest first (durableops/sealing.py).
DURABLEOPS_ENCRYPTION_KEYS = env.list("DURABLEOPS_ENCRYPTION_KEYS", default=[])

# A body may carry an input of the largest accepted size, and what stands around it. The API refuses more at its door.
DATA_UPLOAD_MAX_MEMORY_SIZE = max(2_621_440, _CONF.payload_max_bytes + 1_000_000)

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
# Where `collectstatic` puts files for a proxy that serves them; web serves them without.
STATIC_ROOT = env.str("STATIC_ROOT", "") or None
STATICFILES_DIRS = [folder for folder in (BASE_DIR / "static",) if folder.is_dir()]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = not PRODUCTION

SESSION_COOKIE_SECURE = PRODUCTION
CSRF_COOKIE_SECURE = PRODUCTION
SECURE_HSTS_SECONDS = 3600 * 24 * 30 if PRODUCTION else 0
SECURE_CSP = {
    "default-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "object-src": [CSP.NONE],
    "base-uri": [CSP.NONE],
    "form-action": [CSP.SELF],
    "frame-ancestors": [CSP.NONE],
}

# Standard output belongs to the commands' answers (`--json`): every log line goes to standard error.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "durableops.masking.MaskingFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("DURABLEOPS_LOG_LEVEL", "INFO")},
    # A line for each request would drown what the engine says; calls are on the record anyway.
    "loggers": {"httpx": {"level": "WARNING"}},
}
