"""Physical lines of a file from a byte position, in bounded memory; what a row is, reader.py decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

BLOCK_BYTES = 64 * 1024
MAX_RECORD_BYTES = 128 * 1024
"""The largest row. Without a limit, one forgotten quote would pull the rest of the file into memory."""


class RecordTooLarge(Exception):
    """The row that is being read is larger than MAX_RECORD_BYTES."""


def raw_lines(file: BinaryIO) -> Iterator[bytes]:
    r"""Lines with their ends, as the csv module sees them: `\n`, `\r\n` and a lone `\r` each end one.

    A line longer than MAX_RECORD_BYTES comes in pieces.
    """
    pending = b""
    while block := file.read(BLOCK_BYTES):
        pieces = (pending + block).splitlines(keepends=True)
        # The last piece may go on in the next block, and a final "\r" may be half of a "\r\n".
        pending = b"" if pieces[-1].endswith(b"\n") else pieces.pop()
        yield from pieces
        if len(pending) > MAX_RECORD_BYTES:
            yield pending
            pending = b""
    if pending:
        yield pending


def ends_line(piece: bytes) -> bool:
    """False for a piece of a line that goes on."""
    return piece.endswith((b"\n", b"\r"))


class RecordLines:
    """Decoded lines for one csv.reader, with the position of the record that is being read.

    Bytes that are not UTF-8 become lone surrogates, so that quoting still works; `undecodable` says so.
    """

    def __init__(self, file: BinaryIO, *, offset: int, line: int) -> None:
        file.seek(offset)
        self._pieces = raw_lines(file)
        self.offset = offset
        """Where the next line begins, in bytes."""
        self.line = line
        """Its number, counted from 1."""
        self.record_offset = offset
        self.record_line = line
        self.undecodable = False
        self.ran_out = False
        """The file ended while a record was being read."""

    def begin_record(self) -> None:
        """What is read from here on belongs to the next record."""
        self.record_offset, self.record_line = self.offset, self.line
        self.undecodable = False

    def __iter__(self) -> RecordLines:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces, None)
        if piece is None:
            self.ran_out = self.offset > self.record_offset
            raise StopIteration
        self.offset += len(piece)
        self.line += 1
        if self.offset - self.record_offset > MAX_RECORD_BYTES:
            raise RecordTooLarge
        try:
            return piece.decode()
        except UnicodeDecodeError:
            self.undecodable = True
            return piece.decode(errors="surrogateescape")


def end_of_line(file: BinaryIO, offset: int) -> int:
    """The byte position behind the line that begins at `offset`."""
    file.seek(offset)
    for piece in raw_lines(file):
        offset += len(piece)
        if ends_line(piece):
            break
    return offset
