"""Which part of a file a header asks for: one range, the whole, or nothing that there is."""

from __future__ import annotations

import pytest

from durableops.artifacts.ranges import OutOfRange, Part, wanted


@pytest.mark.parametrize(
    ("header", "size", "first", "last"),
    [
        ("bytes=0-0", 10, 0, 0),
        ("bytes=2-5", 10, 2, 5),
        ("bytes=2-", 10, 2, 9),
        ("bytes=2-99", 10, 2, 9),
        ("bytes=-3", 10, 7, 9),
        ("bytes=-99", 10, 0, 9),
        ("Bytes = 9-", 10, 9, 9),
    ],
)
def test_one_range_is_a_part(header, size, first, last):
    part = wanted(header, size=size)
    assert part == Part(first=first, last=last)
    assert part.size == last - first + 1


@pytest.mark.parametrize(
    "header",
    [
        "",
        "bytes=",
        "bytes=-",
        "bytes=5-2",
        "bytes=0-1,4-5",
        "lines=0-1",
        "bytes=a-b",
        "bytes=-1-2",
        "bytes=" + "9" * 400,
    ],
)
def test_what_is_no_range_or_several_is_the_whole_file(header):
    assert wanted(header, size=10) is None


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)])
def test_range_behind_the_end_is_told(header, size):
    with pytest.raises(OutOfRange):
        wanted(header, size=size)
