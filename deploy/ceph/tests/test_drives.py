"""Tests of `drives`: maps, statuses, servers that answer and such that do not."""

import http.server
import json
import os
import socket
import tempfile
import threading
import unittest
from typing import Any, Dict

from pumice.drives import Drive, Misread, Place, Scrub, Unreachable, ask, attached_paths, choose, parse_drive, parse_listed, parse_map


def status(**changes: Any) -> Dict[str, Any]:
    """A drive in a status, as a server answers."""
    drive = {
        'path': '/srv/d', 'uuid': 'u', 'state': 'online', 'state_reason': None, 'read_only_requested': False,
        'logical_capacity_bytes': 3000, 'logical_used_bytes': 500, 'physical_limit_bytes': 1000, 'physical_used_bytes': 200,
        'physical_repackable_bytes': 0, 'opens_count': 1, 'compression_ratio': 2.5, 'expected_compression_ratio': 2.5, 'out_of_space': False, 'backing_full': False, 'time_to_full': {'seconds': 60.5},
        'errors': {'corrupt_records_count': 0}, 'cleaning': {'segments_damaged_count': 0}, 'backing': {'missing_bytes': 0},
        'server': {'instance': 'i', 'scrub': None, 'events': {'counts': []}},
    }
    drive.update(changes)
    return drive


class Server:
    """Answers every request with a body, in a thread, until the end of the block."""

    def __init__(self, body: bytes, code: int = 200, hangs: bool = False) -> None:
        # Opened at the end, so that no request outlives the server.
        self._gate = gate = threading.Event()
        self.requests = requests = []
        if not hangs:
            gate.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                gate.wait()
                self.send_response(code if self.path == '/status' else 404)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass

            def log_message(self, *arguments: Any) -> None:
                pass
        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.address = '127.0.0.1:%d' % self._server.server_port

    def __enter__(self) -> 'Server':
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *arguments: Any) -> None:
        self._gate.set()
        self._server.shutdown()
        self._server.server_close()


def ignore(_: Any) -> None:
    """For the connection of a request that nobody ends."""


class Maps(unittest.TestCase):
    def test_words(self) -> None:
        self.assertEqual(parse_map('0=host:9841 12=[::1]:1#/srv/a=b'),
                         ({0: Place('host:9841', None), 12: Place('[::1]:1', '/srv/a=b')}, []))
        self.assertEqual(parse_map(' '), ({}, []))

    def test_a_word_that_is_invalid_takes_no_other_with_it(self) -> None:
        for word in ('0', 'x=host:1', '0=', '0=#/srv', '0=a', '0=a:b', '0=a:0', '0=a:65536', '0=[]:1', '0=a:' + '1' * 5000, '1' * 5000 + '=a:1', '0=a:1²', '²=a:1', '7=b:2'):
            places, problems = parse_map('7=a:1 %s 8=a:1' % word)
            self.assertEqual(places, {7: Place('a:1', None), 8: Place('a:1', None)}, word)
            self.assertEqual(len(problems), 1, word)
            self.assertIn(word, problems[0])


class Statuses(unittest.TestCase):
    def test_numbers(self) -> None:
        drive = parse_drive(status(server={'scrub': {'state': 'finished', 'started_unix_seconds': 7, 'faults_count': 1}}))
        self.assertEqual((drive.used_ratio, drive.occupied_ratio), (0.2, 0.2))
        self.assertEqual(drive.seconds_to_full, 60.5)
        self.assertEqual(drive.scrub, Scrub('finished', 7, 1))
        self.assertIsNone(drive.trouble)

    def test_what_can_be_packed_anew_is_not_occupied(self) -> None:
        self.assertEqual(parse_drive(status(physical_repackable_bytes=50)).occupied_ratio, 0.15)
        # It is an estimate.
        self.assertEqual(parse_drive(status(physical_repackable_bytes=300)).occupied_ratio, 0)

    def test_corruption_since_the_drive_was_opened(self) -> None:
        for kind, count, fresh in (('corrupt-record', 1, True), ('damaged-segment', 2, True), ('corrupt-record', 0, False),
                                   ('opened', 1, False)):
            server = {'instance': 'i', 'events': {'counts': [{'event': kind, 'count': count}]}}
            self.assertEqual(parse_drive(status(server=server)).is_fresh_damage, fresh, kind)

    def test_a_drive_that_is_down_has_no_numbers(self) -> None:
        drive = parse_drive({'path': '/srv/d', 'state': 'down', 'state_reason': 'no such file', 'server': None})
        self.assertEqual((drive.trouble, drive.used_ratio), ('down: no such file', 0.0))

    def test_read_only_is_trouble_unless_requested(self) -> None:
        self.assertEqual(parse_drive(status(state='read-only')).trouble, 'read-only')
        self.assertIsNone(parse_drive(status(state='read-only', read_only_requested=True)).trouble)

    def test_a_full_backing_is_out_of_space(self) -> None:
        self.assertTrue(parse_drive(status(backing_full=True)).out_of_space)


    def test_one_that_is_not_understood_hides_no_other(self) -> None:
        deep: Any = []
        for _ in range(5000):
            deep = [deep]
        for changes in ({'state': None, 'opens_count': 'x'}, {'physical_used_bytes': -1}, {'physical_used_bytes': 1 << 64},
                        {'physical_limit_bytes': float('inf')}, {'compression_ratio': float('nan')}, {'errors': [1]},
                        {'time_to_full': {'seconds': 'soon'}}, {'time_to_full': {'seconds': float('inf')}}, {'uuid': deep},
                        {'server': {'scrub': {'state': 'x'}}}, {'server': {'events': {'counts': [{'event': 'x'}]}}}):
            answer = [parse_listed(drive) for drive in (status(path='/srv/a', **changes), status(path='/srv/b'))]
            self.assertIsInstance(answer[0], Misread, list(changes))
            bad, good = (choose(Place('h:1', path), answer) for path in ('/srv/a', '/srv/b'))
            self.assertIn('the status of drive /srv/a is not understood', bad.reason)
            self.assertEqual(good.path, '/srv/b')
            self.assertIn('no drive /srv/c', choose(Place('h:1', '/srv/c'), answer).reason)
            self.assertIn('is not understood', choose(Place('h:1', None), answer[:1]).reason)
        for element in (None, 1, [], 'x', {}, {'path': None}, {'path': deep}, {'state': 'online'}):
            answer = [parse_listed(element), parse_listed(status())]
            self.assertEqual(answer[0].path, None, 'this test is about those whose path is not known')
            self.assertIn('is not understood', choose(Place('h:1', '/srv/a'), answer).reason)
            self.assertIsInstance(choose(Place('h:1', '/srv/d'), answer), Drive)

    def test_texts_can_be_sent(self) -> None:
        drive = parse_drive(json.loads('{"path": "/srv/\\udc80", "state": "down", "state_reason": "\\ud800", "uuid": "\\udfff"}'))
        (drive.path + drive.trouble + drive.uuid).encode()


class Servers(unittest.TestCase):
    def test_answers_that_are_none(self) -> None:
        for body, code in ((b'no', 200), (b'[' * 100000, 200), (b'[]', 200), (b'{"drives": 1}', 200), (b'{}', 200), (b'{}', 503)):
            with Server(body, code) as server:
                self.assertIsInstance(ask(server.address, 5, ignore), Unreachable, body)
        for drives in (b'[]', b'[{}]', b'[{"path": 1, "state": 1, "opens_count": "x"}]'):
            with Server(b'{"drives": ' + drives + b'}') as server:
                self.assertIsInstance(choose(Place(server.address, None), ask(server.address, 5, ignore)), Unreachable, drives)
        self.assertIsInstance(ask('127.0.0.1', 1, ignore), Unreachable)

    def test_nobody_listens(self) -> None:
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            self.assertIsInstance(ask('127.0.0.1:%d' % taken.getsockname()[1], 1, ignore), Unreachable)

    def test_unix_socket(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 's')
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(path)
            listening.listen()

            def answer() -> None:
                connection, _ = listening.accept()
                connection.recv(4096)
                connection.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n' + json.dumps({'drives': [status()]}).encode())
                connection.close()
            thread = threading.Thread(target=answer)
            thread.start()
            found = choose(Place('unix:' + path, None), ask('unix:' + path, 5, ignore))
            thread.join()
            listening.close()
        self.assertIsInstance(found, Drive)


class Attachments(unittest.TestCase):
    def test_what_cannot_be_read_is_left_out(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (('a', '{"node": "/dev/loop3", "path": "/srv/d"}'), ('b', '{'), ('c', '{"node": 1}')):
                os.mkdir(os.path.join(folder, name))
                with open(os.path.join(folder, name, 'attachment.json'), 'w') as file:
                    file.write(text)
            self.assertEqual(attached_paths(folder), {'/dev/loop3': '/srv/d'})
