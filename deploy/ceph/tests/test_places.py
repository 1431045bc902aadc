"""Tests of `places`: addresses of OSDs in the map, patterns."""

import unittest

from pumice.drives import Place, Unreachable
from pumice.places import Patterns, host_of


class Hosts(unittest.TestCase):
    def test_addresses(self) -> None:
        for address, host in (('10.0.0.1:6801/123', '10.0.0.1'), ('[fd00::1]:6801/123', '[fd00::1]'), ('10.0.0.1:6801', '10.0.0.1')):
            self.assertEqual(host_of(address), host)

    def test_no_address(self) -> None:
        for address in ('(unrecognized address family 0)/0', ':/0', ':0/0', '-', '', '/', '0.0.0.0:0/0', '[::]:0/0', '[::]:6801/0',
                        '0.0.0.0:6801/0', '10.0.0.1:0/0', '10.0.0.1', '10.0.0.1:x/1', '10.0.0.1:' + '0' * 9999 + '/1', ':6801/1', '10.0.0.1:²/1'):
            self.assertIsNone(host_of(address), address)


class Filled(unittest.TestCase):
    def test_places(self) -> None:
        self.assertEqual(Patterns('{host}:1', '/srv/{host}/{id}').place(7, '[::1]', 'a', '/other'), Place('[::1]:1', '/srv/a/7'))
        self.assertEqual(Patterns('{host}:1', '/srv/{id}').place(7, 'h', None, None), Place('h:1', '/srv/7'))
        self.assertEqual(Patterns('h:1', '').place(7, 'x', None, '/srv/a'), Place('h:1', '/srv/a'))
        self.assertEqual(Patterns('unix:/run/x', '').place(7, 'x', None, None), Place('unix:/run/x', None))

    def test_what_is_wrong_for_all(self) -> None:
        for patterns in (Patterns('{nothing}:1', ''), Patterns('{host', ''), Patterns('x', ''), Patterns('{host}', ''), Patterns('{host}:0', ''),
                         Patterns('{}:1', ''), Patterns('{host!z}:1', ''), Patterns('h:1', '{0}'), Patterns('h:1', '{id.x}'), Patterns('h:1', '{address}')):
            self.assertIsNotNone(patterns.problem(), patterns)
        for patterns in (Patterns('{host}:1', ''), Patterns('h:1', '/srv/{host}/{id}'), Patterns('unix:/run/x', '/a')):
            self.assertIsNone(patterns.problem(), patterns)

    def test_what_is_wrong_for_one(self) -> None:
        for patterns in (Patterns('{host[3]}:1', ''), Patterns('{host}:1', '/srv/{host}/{id}')):
            self.assertIsNone(patterns.problem(), patterns)
            self.assertIsInstance(patterns.place(7, 'h', None, None), Unreachable, patterns)
