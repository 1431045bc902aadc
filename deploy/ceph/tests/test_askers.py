"""Tests of `askers`: many servers, of which some hang."""

import json
import socket
import threading
import unittest
import unittest.mock
from contextlib import ExitStack

from pumice.askers import Askers
from pumice.drives import Drive, Place, Unreachable

from .test_drives import Server, status

ONE = json.dumps({'drives': [status()]}).encode()
# Much longer than any answer takes, much shorter than a test may.
LONG = 30
# What a round with a server that hangs takes; the others have to answer within it on a busy machine.
SHORT = 3


class Asking(unittest.TestCase):
    def test_each_osd_gets_its_drive(self) -> None:
        body = json.dumps({'drives': [status(path='/srv/a'), status(path='/srv/b')]}).encode()
        with Server(body) as two, Server(ONE) as one:
            answers = Askers().ask_all({0: Place(two.address, '/srv/b'), 1: Place(one.address, None),
                                        2: Place(two.address, '/srv/c'), 3: Place(two.address, None)}, LONG)
            self.assertEqual(len(two.requests), 1, 'each server is asked once')
        self.assertEqual([answers[0].path, answers[1].path], ['/srv/b', '/srv/d'])
        self.assertIn('no drive /srv/c', answers[2].reason)
        self.assertIn('2 drives there', answers[3].reason)

    def test_nobody_to_ask(self) -> None:
        self.assertEqual(Askers().ask_all({}, LONG), {})

    def test_a_server_that_hangs_delays_nobody_and_is_not_asked_again(self) -> None:
        askers = Askers()
        with Server(ONE) as well, Server(ONE, hangs=True) as hung:
            places = {0: Place(well.address, None), 1: Place(hung.address, None)}
            answers = askers.ask_all(places, SHORT)
            self.assertIsInstance(answers[0], Drive)
            self.assertIn('no answer within', answers[1].reason)

    def test_one_that_is_not_ended_is_not_asked_again(self) -> None:
        # Its request cannot be ended, as in a look-up of a name.
        askers, gate, asked = Askers(), threading.Event(), []

        def ask(address: str, timeout: float, began: object) -> Unreachable:
            asked.append(address)
            if address == 'hung:1':
                gate.wait()
            return Unreachable('answered')
        with unittest.mock.patch('pumice.askers.ask', ask):
            places = {0: Place('hung:1', None), 1: Place('well:1', None)}
            for _ in range(4):
                answers = askers.ask_all(places, SHORT)
                self.assertIn('no answer within', answers[0].reason)
                self.assertEqual(answers[1].reason, 'answered')
            self.assertEqual(asked.count('hung:1'), 1)
            self.assertEqual(asked.count('well:1'), 4)
            gate.set()
            while askers.ask_all(places, LONG)[0].reason != 'answered':
                pass
        self.assertEqual(asked.count('hung:1'), 2, 'once it has answered it is asked again')

    def test_threads_are_few_and_those_that_answer_come_first(self) -> None:
        askers, gate, most = Askers(threads_max=3), threading.Event(), []

        def ask(address: str, timeout: float, began: object) -> Unreachable:
            most.append(threading.active_count())
            if address.startswith('a-hung'):
                gate.wait()
            return Unreachable('answered')
        before = threading.active_count()
        with unittest.mock.patch('pumice.askers.ask', ask):
            places = {osd: Place('a-hung-%d:1' % osd, None) for osd in range(2)}
            places.update({osd: Place('b-well-%d:1' % osd, None) for osd in range(10, 30)})
            for _ in range(3):
                answers = askers.ask_all(places, SHORT)
                self.assertEqual({answers[osd].reason for osd in range(10, 30)}, {'answered'})
            # Two more hang: no thread is left for any.
            places.update({osd: Place('a-hung-%d:1' % osd, None) for osd in range(2, 4)})
            askers._failed = set()
            answers = askers.ask_all(places, SHORT)
            self.assertIn('not asked: 3 other requests', answers[29].reason)
            gate.set()
        self.assertLessEqual(max(most), before + 3)

    def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_its_thread(self) -> None:
        askers, ended = Askers(), threading.Event()
        with ExitStack() as stack:
            listening = stack.enter_context(socket.create_server(('127.0.0.1', 0)))

            def drip() -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(0.05)
                    try:
                        connection.sendall(b'HTTP/1.1 200 OK\r\n')
                        while True:
                            connection.sendall(b'X: ')
                            try:
                                if not connection.recv(4096):
                                    break
                            except TimeoutError:
                                pass
                    except OSError:
                        pass
                ended.set()
            threading.Thread(target=drip, daemon=True).start()
            place = {0: Place('127.0.0.1:%d' % listening.getsockname()[1], None)}
            self.assertIn('no answer within', askers.ask_all(place, 0.5)[0].reason)
            self.assertTrue(ended.wait(LONG), 'the connection is ended')
