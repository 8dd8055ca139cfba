"""The Inbox: one page for everything that waits for a person. Each kind of work is a queue in a module of its own.

`frame` says what a queue is and holds the list; `durableops.console.views.inbox` shows whichever queue is asked for.
"""
