"""Import a CSV into the ticket desk, one ticket per row, surviving whatever happens to the workers.

`reader` turns bytes into rows, `layout` turns rows into items, `source` looks at a file before anything starts,
`rejects` keeps what could not be imported, `desk` is the downstream, `page` imports one page, `workflows` is the run.
"""

from __future__ import annotations
