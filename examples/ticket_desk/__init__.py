"""A ticket desk: a real HTTP service with durable storage that misbehaves on request, for demos, drills and tests.

    python -m examples.ticket_desk --port 0 --data DIR

prints one JSON line with its address once it answers. `POST /tickets` opens a ticket and honours
`Idempotency-Key`; `POST /faults` asks for misbehaviour; `GET /requests`, `/tickets` and `/stats` tell what happened.
It knows nothing of durableops.
"""

from __future__ import annotations
