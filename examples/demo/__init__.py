"""The main job end to end: real processes, real data, one call that times out, one worker killed in mid-call.

    python -m examples.demo        (what `make demo` runs; ONCE=1 exits when done, CSV=path imports your own file)

`stage` starts and stops the processes, `story` tells what happens in which order, `record` reads what the engine wrote,
`account` compares that with what the desk saw, `narrate` finds the words.
"""

from __future__ import annotations
