"""The outbox in the engine: posting messages with a run's commits, and relaying them to where they are meant to go.

`posting` belongs to the run's holder; everything else to relays, which hold lanes and know nothing of fences.
"""
