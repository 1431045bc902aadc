"""Tests of `lab.sh` without Ceph: what it refuses to run as root, and what it ends."""

import os
import subprocess
import tempfile
import unittest

LAB = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'lab.sh')
# Somebody else than root.
NOBODY = 65534


@unittest.skipUnless(os.geteuid() == 0, 'needs root')
class Directories(unittest.TestCase):
    def setUp(self) -> None:
        above = tempfile.TemporaryDirectory()
        self.addCleanup(above.cleanup)
        self.above = above.name
        self.lab = os.path.join(above.name, 'lab')
        self.proof = os.path.join(above.name, 'was-run')
        os.mkdir(self.lab, 0o755)
        self.settings = os.path.join(self.lab, 'settings')
        with open(self.settings, 'w') as file:
            file.write('touch %s\n' % self.proof)
        os.chmod(self.settings, 0o644)

    def is_run(self, command: str = 'status') -> bool:
        """Whether the settings were run."""
        first, *rest = command.split()
        done = subprocess.run([LAB, first, '--dir', self.lab, *rest], capture_output=True, text=True, timeout=60,
                              env={**os.environ, 'PUMICE': '/bin/false', 'CEPH_SECONDS': '1'})
        was_run = os.path.exists(self.proof)
        if not was_run:
            self.assertNotEqual(done.returncode, 0)
            self.assertIn('it is not used', done.stderr)
        return was_run

    def test_root_s_own(self) -> None:
        self.assertTrue(self.is_run())

    def test_a_directory_of_somebody_else(self) -> None:
        os.chown(self.lab, NOBODY, NOBODY)
        for command in ('status', 'down', 'run true', 'up'):
            self.assertFalse(self.is_run(command), command)
        self.assertTrue(os.path.exists(self.settings))

    def test_settings_of_somebody_else(self) -> None:
        os.chown(self.settings, NOBODY, 0)
        for command in ('status', 'down', 'run true', 'up'):
            self.assertFalse(self.is_run(command), command)

    def test_what_others_may_write(self) -> None:
        for path, mode in ((self.lab, 0o777), (self.lab, 0o1777), (self.settings, 0o666)):
            before = os.stat(path).st_mode
            os.chmod(path, mode)
            self.assertFalse(self.is_run(), (path, oct(mode)))
            os.chmod(path, before)
        os.chmod(self.lab, 0o775)
        os.chown(self.lab, 0, NOBODY)
        self.assertFalse(self.is_run(), 'a group of others')

    def test_a_directory_above_that_others_may_change(self) -> None:
        os.chmod(self.above, 0o777)
        self.assertFalse(self.is_run())
        os.chmod(self.above, 0o1777)
        self.assertTrue(self.is_run(), 'nobody may rename what is not his own')

    def test_links(self) -> None:
        other = self.lab + '-other'
        os.rename(self.lab, other)
        os.symlink(other, self.lab)
        self.assertFalse(self.is_run())
        os.remove(self.lab)
        os.rename(other, self.lab)
        os.rename(self.settings, self.lab + '/other')
        os.symlink(self.lab + '/other', self.settings)
        self.assertFalse(self.is_run())

    def test_an_empty_directory_of_somebody_else_gets_no_cluster(self) -> None:
        os.remove(self.settings)
        os.chown(self.lab, NOBODY, NOBODY)
        done = subprocess.run([LAB, 'up', '--raw', '--dir', self.lab], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('it is not used', done.stderr)
        self.assertEqual(os.listdir(self.lab), [])


@unittest.skipUnless(os.geteuid() == 0, 'needs root')
class Down(unittest.TestCase):
    def setUp(self) -> None:
        above = tempfile.TemporaryDirectory()
        self.addCleanup(above.cleanup)
        self.lab = os.path.join(above.name, 'lab')
        for name in ('', 'osd', 'drives', 'run'):
            os.mkdir(os.path.join(self.lab, name))
        self.configuration = os.path.join(self.lab, 'ceph.conf')
        for path in (self.configuration, os.path.join(self.lab, 'settings')):
            with open(path, 'w'):
                pass

    def start(self, name: str) -> 'subprocess.Popen[str]':
        """A process that goes by a name, with the configuration as an argument."""
        started = subprocess.Popen([name, '-c', 'echo; read -r line', 'x', self.configuration], executable='/bin/bash', text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(started.__exit__, None, None, None)
        self.addCleanup(started.kill)
        started.stdout.readline()
        return started

    def down(self) -> 'subprocess.CompletedProcess[str]':
        return subprocess.run([LAB, 'down', '--dir', self.lab], capture_output=True, text=True, timeout=100)

    def test_daemons_of_the_cluster_are_ended_and_nothing_else(self) -> None:
        daemons = [self.start(name) for name in ('ceph-mon', '/usr/bin/ceph-osd')]
        others = [self.start(name) for name in ('less', '/usr/bin/ceph', 'ceph-mon-notes')]
        # The number of a daemon that ended may be somebody else's by now.
        with open(os.path.join(self.lab, 'run', 'mgr.x.pid'), 'w') as file:
            file.write('%d\n' % others[0].pid)
        done = self.down()
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual([process.wait(10) for process in daemons], [-9, -9])
        self.assertEqual([process.poll() for process in others], [None] * 3)
        self.assertFalse(os.path.exists(self.lab))

    def test_a_daemon_that_ended_before_it_was_told_to_keeps_no_other_from_ending(self) -> None:
        # `kill` of a process that is gone fails, as this one does.
        daemons = {name: self.start(name) for name in ('radosgw', 'ceph-mgr', 'ceph-mon')}
        for name, key in (('radosgw', 'client.rgw.lab'), ('ceph-mgr', 'mgr.x'), ('ceph-mon', 'mon.a')):
            with open(os.path.join(self.lab, 'run', key + '.pid'), 'w') as file:
                file.write('%d\n' % daemons[name].pid)
        script = 'kill() { builtin kill "$@"; return 1; }; export -f kill; exec "$@"'
        done = subprocess.run(['bash', '-c', script, 'x', LAB, 'down', '--dir', self.lab], capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual([process.wait(10) for process in daemons.values()], [-15] * 3)
        self.assertFalse(os.path.exists(self.lab))
