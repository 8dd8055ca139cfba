"""Undoing what runs did: what is owed, the linked run that works through it, and what people decide about it.

`ways` knows how an effect is undone, `owing` keeps what is owed and begins, `undoing` is the built-in workflow that
works through it, `people` are the verbs, `reading` is for pages.
"""
