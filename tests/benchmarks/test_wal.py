# ruff: noqa: E501
"""Reading the write-ahead log's listing: only the transactions of one database count."""

from __future__ import annotations

from benchmarks.wal import Written, tally

LISTING = """\
rmgr: Heap        len (rec/tot):    331/   331, tx:       7001, lsn: 0/1, prev 0/0, desc: INSERT off 3, blkref #0: rel 1663/500/25270 blk 1
rmgr: Heap        len (rec/tot):     88/  8280, tx:       7001, lsn: 0/2, prev 0/1, desc: HOT_UPDATE off 9, blkref #0: rel 1663/500/25172 blk 0 FPW
rmgr: Transaction len (rec/tot):     34/    34, tx:       7001, lsn: 0/3, prev 0/2, desc: COMMIT 2030-01-01 00:00:00.0 UTC
rmgr: Heap        len (rec/tot):    100/   100, tx:       7002, lsn: 0/4, prev 0/3, desc: INSERT off 3, blkref #0: rel 1663/600/25270 blk 1
rmgr: Transaction len (rec/tot):     34/    34, tx:       7002, lsn: 0/5, prev 0/4, desc: COMMIT 2030-01-01 00:00:00.0 UTC
rmgr: Heap        len (rec/tot):     50/    50, tx:       7003, lsn: 0/6, prev 0/5, desc: INSERT off 4, blkref #0: rel 1663/500/25270 blk 1
rmgr: Transaction len (rec/tot):     34/    34, tx:       7003, lsn: 0/7, prev 0/6, desc: ABORT 2030-01-01 00:00:00.0 UTC
rmgr: Heap2       len (rec/tot):     74/    74, tx:          0, lsn: 0/8, prev 0/7, desc: PRUNE, blkref #0: rel 1663/500/25172 blk 0
"""


def test_commits_and_bytes_of_another_database_are_left_out():
    assert tally(LISTING.splitlines(), database=600) == Written(commits=1, record_bytes=134)


def test_full_page_images_do_not_count_and_an_abort_is_no_commit():
    assert tally(LISTING.splitlines(), database=500) == Written(commits=1, record_bytes=331 + 88 + 34 + 50 + 34)
