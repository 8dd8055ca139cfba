"""What the example services share: HTTP, a journal that commits in groups, and misbehaviour on request.

Nothing here knows what a service is about, and nothing knows of durableops.
"""

from __future__ import annotations
