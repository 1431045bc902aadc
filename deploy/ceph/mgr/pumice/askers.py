"""Asks many servers at once, in bounded time and with a bounded number of threads. Imports nothing of Ceph."""

import http.client
import socket
import threading
import time
from typing import Dict, List, Optional, Set, Union

from .drives import Answer, Listed, Place, Unreachable, ask, choose

# Most threads at a time. One asks one server after the other.
THREADS_MAX = 32


class _Request:
    """A request that has been sent, and not been answered."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._connection: Optional[http.client.HTTPConnection] = None

    def connect(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def abandon(self) -> None:
        """Ends it, so that its thread gets free: a server that sends a byte now and then would hold it for ever."""
        sock = self._connection and self._connection.sock
        if sock:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Askers:
    """Remembers from one round to the next which servers have not answered yet: they are not asked again until they have."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._changed = threading.Condition()
        self._threads = 0
        self._outstanding: Dict[str, _Request] = {}
        # Those that gave no status the last time wait for the others: they may take all threads.
        self._failed: Set[str] = set()

    def ask_all(self, places: Dict[int, Place], timeout: float) -> Dict[int, Answer]:
        """Asks each server once, and returns the answer for each OSD, after `timeout` seconds at the latest."""
        addresses = {place.address for place in places.values()}
        answers = self._ask(addresses, timeout)
        self._failed = {address for address in addresses if isinstance(answers[address], Unreachable)}
        return {osd: choose(place, answers[place.address]) for osd, place in places.items()}

    def _ask(self, addresses: Set[str], timeout: float) -> Dict[str, Union[List[Listed], Unreachable]]:
        answers: Dict[str, Union[List[Listed], Unreachable]] = {}
        until = time.monotonic() + timeout
        with self._changed:
            waiting = sorted(addresses - set(self._outstanding), key=lambda address: (address in self._failed, address))
            asked = len(waiting)
            for _ in range(min(len(waiting), self._threads_max - self._threads)):
                threading.Thread(target=self._work, args=(waiting, answers, timeout), daemon=True).start()
                self._threads += 1
            while len(answers) < asked and self._threads > 0 and time.monotonic() < until:
                self._changed.wait(max(until - time.monotonic(), 0))
            # From here on no thread takes another one, and nobody reads what comes now.
            unasked = set(waiting)
            waiting.clear()
            found = dict(answers)
            for address in addresses - set(found):
                request = self._outstanding.get(address)
                if address in unasked:
                    reason = 'not asked: %d other requests are not answered' % len(self._outstanding)
                elif request is None:
                    reason = 'the answer to an earlier request came only now'
                else:
                    reason = 'no answer within %.0f seconds' % (time.monotonic() - request.began)
                    request.abandon()
                found[address] = Unreachable('%s: %s' % (address, reason))
        return found

    def _work(self, waiting: List[str], answers: Dict[str, Union[List[Listed], Unreachable]], timeout: float) -> None:
        """A thread: asks one after the other."""
        while True:
            with self._changed:
                if not waiting:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                address = waiting.pop(0)
                request = self._outstanding[address] = _Request()
            try:
                answer = ask(address, timeout, request.connect)
            except Exception as error:  # the thread goes on with others
                answer = Unreachable('%s: %s: %s' % (address, type(error).__name__, error))
            with self._changed:
                del self._outstanding[address]
                answers[address] = answer
                self._changed.notify_all()
