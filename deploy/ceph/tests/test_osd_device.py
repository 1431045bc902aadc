"""Tests of `pumice-osd-device` with a stand-in for `pumice`: where `block` of an OSD leads before it starts."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'systemd', 'pumice-osd-device')


@unittest.skipUnless(shutil.which('jq'), 'jq is not installed')
class Devices(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ('bin', 'pumice', 'ceph/osd/ceph-7'):
            os.makedirs(os.path.join(self.folder, name))
        # The script, for this directory in place of /var/lib.
        with open(SCRIPT) as file:
            text = file.read()
        self.text = text.replace('/var/lib/', self.folder + '/')
        self.script = self.write('script', self.text)
        self.write('bin/chown', '#!/bin/sh\n')
        self.drive = os.path.join(self.folder, 'pumice', 'osd.7')
        self.block = os.path.join(self.folder, 'ceph/osd/ceph-7/block')
        os.symlink('/dev/of-last-boot', self.block)
        self.list({self.drive: '/dev/of-this-boot'})

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.folder, name)
        with open(path, 'w') as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def list(self, devices: 'dict[str, str | None]') -> None:
        """What `pumice list` shows: devices by drive."""
        drives = [{'path': path, 'attachment': device and {'device': device}} for path, device in devices.items()]
        self.write('bin/pumice', "#!/bin/sh\ncat <<'END'\n%s\nEND\n" % json.dumps({'drives': drives}))

    def run_it(self) -> 'subprocess.CompletedProcess[str]':
        return subprocess.run(['sh', self.script, '7'], capture_output=True, text=True, timeout=60,
                              env={**os.environ, 'PATH': self.folder + '/bin:' + os.environ['PATH'], 'CLUSTER': 'ceph'})

    def link(self, device: str) -> None:
        os.remove(self.block)
        os.symlink(device, self.block)

    def refused(self, leads_to: str = '/dev/of-last-boot') -> str:
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(os.readlink(self.block), leads_to)
        return done.stderr

    def test_a_drive_in_a_file_and_one_behind_a_link(self) -> None:
        disk = self.write('disk', '')
        for make in (lambda: os.symlink(disk, self.drive), lambda: shutil.copy(disk, self.drive)):
            make()
            done = self.run_it()
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertEqual(os.readlink(self.block), '/dev/of-this-boot')
            os.remove(self.drive)

    def test_an_osd_on_no_drive_stays_as_it_is(self) -> None:
        self.assertEqual(self.run_it().returncode, 0)
        self.assertEqual(os.readlink(self.block), '/dev/of-last-boot')

    def test_a_disk_that_is_gone(self) -> None:
        os.symlink('/dev/disk/by-id/gone', self.drive)
        self.assertEqual(self.refused(), '%s leads to /dev/disk/by-id/gone, which is not there: osd.7 does not start without its disk\n'
                         % self.drive)

    def test_a_drive_that_does_not_exist(self) -> None:
        # The link of an OSD that was on a drive, by the names of devices that `pumice attach` makes.
        for number, old in enumerate(('/dev/ublkb4711', '/dev/nbd4711', '/dev/loop4711')):
            self.link(old)
            self.assertEqual(self.refused(old), '%s does not exist, nor does %s, its device at the last boot: '
                             'osd.7 does not start without its drive\n' % (self.drive, old), number)
        # A device that is there: of another drive, or of none.
        self.script = self.write('script', self.text.replace('/dev/loop', self.folder + '/loop'))
        old = self.write('loop1', '')
        self.link(old)
        self.list({'/srv/other': old})
        self.assertEqual(self.refused(old), '%s does not exist, and %s, its device at the last boot, is that of /srv/other: '
                         'osd.7 does not start without its drive\n' % (self.drive, old))
        self.list({'/srv/other': '/dev/loop2'})
        done = self.run_it()
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual(os.readlink(self.block), old)
        # Whose device that is cannot be known.
        for program, reason in (('exit 1', 'pumice list fails'), ('echo no JSON', 'jq cannot read the list of drives')):
            self.write('bin/pumice', '#!/bin/sh\n%s\n' % program)
            self.assertIn('osd.7 does not start: %s\n' % reason, self.refused(old))

    def test_an_osd_that_does_not_exist(self) -> None:
        self.write('pumice/osd.7', '')
        shutil.rmtree(os.path.dirname(self.block))
        done = self.run_it()
        self.assertEqual((done.returncode, done.stderr), (1, '%s does not exist: osd.7 was not created on this host, or is not mounted\n'
                                                          % os.path.dirname(self.block)))

    def test_wrong_usage(self) -> None:
        for arguments in ([], ['7', '8']):
            done = subprocess.run(['sh', self.script, *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (2, 'usage: pumice-osd-device ID, the number of an OSD\n'))

    def test_a_drive_that_is_not_attached(self) -> None:
        self.write('pumice/osd.7', '')
        for devices in ({}, {self.drive: None}, {self.drive + '1': '/dev/other'}):
            self.list(devices)
            self.assertIn('is not attached', self.refused())
        self.write('bin/pumice', '#!/bin/sh\nexit 1\n')
        self.assertIn('pumice list fails', self.refused())
