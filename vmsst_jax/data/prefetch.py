"""The thread that reads data and sends it to the devices ahead of the training loop."""

import queue
import threading
import time
from collections.abc import Callable


class Prefetcher:
    """Runs a stream and the transfer to the device in a thread, up to ``depth`` batches ahead of the training loop.

    Attributes:
      waited: seconds that :meth:`next` has waited for data so far.
    """

    def __init__(self, stream, to_device: Callable[[dict], object], depth: int = 2):
        """Starts at once. The stream belongs to the thread from here on: restore it before, close before reusing it."""
        if depth < 1:
            raise ValueError(f"depth is {depth}; wanted 1 or more batches ahead.")
        self.waited = 0.0
        self._state = stream.state()
        self._ready: queue.Queue = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(stream, to_device), name="prefetch", daemon=True)
        self._thread.start()

    def _run(self, stream, to_device) -> None:
        while not self._stop.is_set():
            try:
                batch, info = stream.next()
                item = (to_device(batch), info, stream.state())
            except BaseException as error:  # raised again by next(), where someone hears it
                item = error
            while not self._stop.is_set():
                try:
                    self._ready.put(item, timeout=0.1)
                    break
                except queue.Full:
                    pass
            if isinstance(item, BaseException):
                return

    def next(self) -> tuple[object, dict]:
        """The next (``to_device(batch)``, info); what went wrong in the thread is raised here."""
        if self._stop.is_set():
            raise RuntimeError("this Prefetcher is closed: make a new one.")
        start = time.perf_counter()
        item = self._ready.get()
        self.waited += time.perf_counter() - start
        if isinstance(item, BaseException):
            self._stop.set()
            raise item
        batch, info, self._state = item
        return batch, info

    def state(self) -> dict:
        """The stream's state right after the batch that :meth:`next` handed out last, however far the thread is."""
        return self._state

    def close(self) -> None:
        """Ends the thread (after the batch it is working on)."""
        self._stop.set()
        self._thread.join()
