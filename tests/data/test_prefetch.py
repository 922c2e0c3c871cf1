import time

import pytest

from vmsst_jax.data.prefetch import Prefetcher


class Counting:
    """A stream of numbers that fails at ``last``."""

    def __init__(self, last=10**9):
        self.count, self.last = 0, last

    def next(self):
        if self.count == self.last:
            raise OSError("the disk is gone")
        self.count += 1
        return {"n": self.count}, {"pair_id": self.count}

    def state(self):
        return {"batch": self.count}


def eventually(condition):
    end = time.time() + 5
    while not condition() and time.time() < end:
        time.sleep(0.01)
    assert condition()


def test_state_is_that_of_the_batch_handed_out():
    stream = Counting()
    prefetcher = Prefetcher(stream, lambda batch: -batch["n"], depth=3)
    eventually(lambda: stream.count >= 4)  # three ready and one in hand
    assert prefetcher.state() == {"batch": 0}
    for n in (1, 2, 3):
        assert prefetcher.next() == (-n, {"pair_id": n})
        assert prefetcher.state() == {"batch": n}
    assert stream.count <= 3 + 3 + 1
    prefetcher.close()


def test_errors_of_the_thread_reach_the_consumer_after_the_good_batches():
    prefetcher = Prefetcher(Counting(last=2), lambda batch: batch)
    prefetcher.next(), prefetcher.next()
    with pytest.raises(OSError, match="the disk is gone"):
        prefetcher.next()
    assert prefetcher.state() == {"batch": 2}
    prefetcher.close()


def test_errors_of_the_transfer_too():
    prefetcher = Prefetcher(Counting(), lambda batch: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        prefetcher.next()
    prefetcher.close()


def test_close_ends_the_thread_while_its_queue_is_full():
    prefetcher = Prefetcher(Counting(), lambda batch: batch)
    prefetcher.close()
    assert not prefetcher._thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        prefetcher.next()


def test_waiting_is_counted():
    slow = Prefetcher(Counting(), lambda batch: time.sleep(0.05))
    slow.next(), slow.next()
    assert 0.05 < slow.waited < 5
    slow.close()
