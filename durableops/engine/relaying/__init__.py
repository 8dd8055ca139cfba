"""Relays: what delivers the messages of the outbox. They hold lanes and know nothing of runs' fences.

How messages get there is `engine.posting`; what is done to lanes is SQL in `runs.relaying`.
"""
