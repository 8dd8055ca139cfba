"""The main job end to end: real processes, real data, a doubt to settle, one call that times out, one worker killed.

    python -m examples.demo        (what `make demo` runs; ONCE=1 exits when done, CSV=path imports your own file)

`stage` starts and stops the processes, `story` tells what happens in which order, `doubt` leaves something to settle in
the inbox, `record` reads what the engine wrote, `account` compares that with what the desk saw, `narrate` finds the
words.
"""

from __future__ import annotations
