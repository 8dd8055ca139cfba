"""The settings of the test suite: servers found or started, the owner's role, and names that no other suite shares."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from durableops.embedded.services import start

CHECKOUT = Path(__file__).resolve().parent.parent


def suffix() -> str:
    """Return what sets this suite's database and queue apart: given, or made from the checkout's path."""
    given = os.environ.get("TEST_DATABASE_SUFFIX") or hashlib.sha256(os.fsencode(CHECKOUT)).hexdigest()[:8]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return re.sub(r"[^a-z0-9]+", "_", f"{given}_{worker}".lower()).strip("_")


os.environ["DURABLEOPS_ENV"] = "development"
os.environ.update(start(CHECKOUT, environ=os.environ))
os.environ["DURABLEOPS_QUEUE_NAME"] = f"durableops-test-{suffix()}"

from durableops.settings import *  # noqa: E402, F403  # the environment above had to be complete first
from durableops.settings import DATABASE_OWNER_URL, DATABASE_URL, database  # noqa: E402

# pytest-django adds the name of an xdist worker by itself.
_BASE_SUFFIX = suffix().removesuffix("_" + os.environ.get("PYTEST_XDIST_WORKER", "none"))
DATABASES = {
    "default": {**database(DATABASE_OWNER_URL or DATABASE_URL), "TEST": {"NAME": f"test_durableops_{_BASE_SUFFIX}"}}
}

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
