"""Failure drills: real processes are killed and stopped, and the record is asked whether the promises held.

The drills themselves stand in the `drills` modules of installed apps, as workflows stand in `workflows`. Here is what
they share: `processes` starts and strikes, `deliveries` sends things twice, `facts` reads the record, `guards` tries
the database's own refusals, `checks` and `report` say what came of it, `runner` puts it together.
"""

from __future__ import annotations
