"""A ledger from before anybody thought of idempotency: a real HTTP service that books whatever it is sent, each time.

    python -m examples.ledger_desk --port 0 --data DIR

prints one JSON line with its address once it answers. `POST /entries` books an entry; sent twice, it books two.
`POST /entries/E-1/reversal` books the opposite, as often as it is asked. Its answers can be lost: `POST /faults` asks
for misbehaviour, `POST /down` for an outage. `GET /search` finds entries by their text; `/entries`, `/requests`,
`/stats` and the page at `/` tell what happened. It knows nothing of durableops.
"""

from __future__ import annotations
