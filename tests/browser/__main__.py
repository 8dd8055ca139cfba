"""`python -m tests.browser`: make sure that there is a browser for the tests in this folder."""

from __future__ import annotations

from tests.browser import main

main()
