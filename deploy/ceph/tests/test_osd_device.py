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
        self.script = self.write('script', text.replace('/var/lib/', self.folder + '/'))
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

    def refused(self) -> str:
        done = self.run_it()
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(os.readlink(self.block), '/dev/of-last-boot')
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

    def test_a_drive_that_is_not_attached(self) -> None:
        self.write('pumice/osd.7', '')
        for devices in ({}, {self.drive: None}, {self.drive + '1': '/dev/other'}):
            self.list(devices)
            self.assertIn('is not attached', self.refused())
        self.write('bin/pumice', '#!/bin/sh\nexit 1\n')
        self.assertIn('is not attached', self.refused())
