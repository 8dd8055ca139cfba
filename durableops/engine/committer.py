"""One commit for what several runs have to write at the same moment. Each is still judged by its own fence.

Whoever has something to write while nobody is at it leads: it takes along what the others have put down meanwhile.
They are sent together, in the order of their run ids, and are committed or refused by the database as one. If it
refuses, or a row is locked by somebody else, each writes for itself: one run's trouble is nobody else's.
"""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field

import psycopg

from durableops.engine.database import ConnectionLost, Database
from runs import fenced
from runs.fenced import Attached, Attachment, FencedWrite, Written

logger = logging.getLogger("durableops.committer")

MOST = 64
"""Writes in one commit at most: more gain little, and the first would wait for the last."""
LOCK_MILLISECONDS = 50

type Answer = tuple[Written | None, Attachment | None]


@dataclass(eq=False)
class _Item:
    write: FencedWrite
    attached: Attached | None
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Released when it was written, or when it is its turn to lead."""
    is_done: bool = False
    answer: Answer | None = None
    """None when it has to be written alone."""
    lost: ConnectionLost | None = None


class Committer:
    """Shared by the threads of a process; its connection is used by one of them at a time."""

    def __init__(self, *, name: str) -> None:
        self._database = Database(name=name, options=f"-c lock_timeout={LOCK_MILLISECONDS}")
        self._mutex = threading.Lock()
        self._waiting: list[_Item] = []
        self._is_led = False
        self.commits = 0
        """How many commits there were, and how many writes were in them."""
        self.writes = 0

    @property
    def is_open(self) -> bool:
        """Whether it has a connection just now."""
        return self._database.is_open

    def close(self) -> None:
        self._database.close()

    def commit(self, write: FencedWrite, attached: Attached | None = None) -> Answer | None:
        """Write together with others. None when it was not written and must be tried alone. Raises ConnectionLost."""
        item = _Item(write, attached)
        item.turn.acquire()
        with self._mutex:
            self._waiting.append(item)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            item.turn.acquire()
        if not item.is_done:
            self._lead()
        if item.lost is not None:
            raise ConnectionLost(str(item.lost)) from item.lost
        return item.answer

    def _lead(self) -> None:
        with self._mutex:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            self._write(batch)
        finally:
            with self._mutex:
                following = self._waiting[0] if self._waiting else None
                self._is_led = following is not None
            for item in batch:
                item.is_done = True
                item.turn.release()
            if following is not None:
                following.turn.release()

    def _write(self, batch: list[_Item]) -> None:
        # As everybody who locks several runs does: in the order of their ids.
        batch.sort(key=lambda item: item.write.run_id)
        try:
            answers = self._send(batch)
        except ConnectionLost as lost:
            for item in batch:
                item.lost = lost
        except psycopg.Error as error:
            logger.debug("%s writes are made one by one: %s", len(batch), error)
        else:
            self.commits += 1
            self.writes += len(batch)
            for item, answer in zip(batch, answers, strict=True):
                item.answer = answer

    def _send(self, batch: list[_Item]) -> list[Answer]:
        with self._database.cursor() as cursor:
            cursors = cursor.numbered(len(batch))
            # All up to the end of the pipeline is one transaction of the server's.
            with cursor.connection.pipeline() if len(batch) > 1 else nullcontext():
                for each, item in zip(cursors, batch, strict=True):
                    fenced.send(each, item.write, item.attached)
            return [fenced.answer(each) for each in cursors]
