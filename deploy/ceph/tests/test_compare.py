"""Tests of how `compare.sh` ends, with a stand-in for `lab.sh`: whatever ends it, no cluster is left."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from typing import List

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Where it is told to, an `up` fails or hangs, and a `down` fails.
LAB = """#!/bin/bash
echo "$*" >>"$CALLS"
name=${3##*/}
case $1 in
    up)
        mkdir "$3" && touch "$3/settings"
        [ "$name" != "${FAILING_UP:-}" ] || exit 9
        [ "$name" != "${HANGING_UP:-}" ] || { trap 'kill $!; echo "removed $name" >>"$CALLS"; rm -r "$3"; exit 1' TERM; sleep 600 & wait; }
        ;;
    down)
        [ "$name" != "${FAILING_DOWN:-}" ] || exit 1
        rm -r "$3"
        ;;
esac
"""
# Much longer than anything here takes.
LONG = 60


class Ends(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.calls = os.path.join(self.folder, 'calls')
        for name in ('compare.sh', 'lab'):
            (shutil.copytree if name == 'lab' else shutil.copy)(os.path.join(HERE, name), os.path.join(self.folder, name))
        with open(os.path.join(self.folder, 'lab.sh'), 'w') as file:
            file.write(LAB)
        os.chmod(file.name, 0o755)
        self.work = os.path.join(self.folder, 'work')
        os.mkdir(self.work)

    def start(self, **environment: str) -> 'subprocess.Popen[str]':
        # A test that runs in the background of a shell, or under nohup, ignores these signals, and so would the script.
        default = lambda: [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)]  # noqa: E731
        return subprocess.Popen(['bash', os.path.join(self.folder, 'compare.sh'), '/bin/false'], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=default,
                                env={**os.environ, 'TMPDIR': self.work, 'CALLS': self.calls, 'TARGETS': 'none none-tuned pumice', **environment})

    def called(self, what: str) -> List[str]:
        """Names of the clusters that something was done to."""
        with open(self.calls) as file:
            words = [line.split() for line in file]
        return [line[-1 if what == 'removed' else 2].rpartition('/')[2] for line in words if line[0] == what]

    def test_a_cluster_that_does_not_end_keeps_no_other_from_ending(self) -> None:
        _, error = (process := self.start(FAILING_UP='raw-tuned', FAILING_DOWN='pumice')).communicate(timeout=LONG)
        self.assertEqual(process.returncode, 9)
        self.assertEqual(self.called('up'), ['pumice', 'raw', 'raw-tuned'])
        self.assertEqual(sorted(self.called('down')), ['pumice', 'raw', 'raw-tuned'])
        left = [os.path.join(self.work, name) for name in os.listdir(self.work)]
        self.assertEqual([os.listdir(path) for path in left], [['pumice']], 'what is attached still would lose its backing')
        self.assertIn('left, because a cluster does not end: ' + left[0], error)

    def test_a_signal_leaves_nothing(self) -> None:
        for number, to_all in ((signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGHUP, False)):
            with self.subTest(number=number, to_all=to_all):
                process = self.start(HANGING_UP='raw-tuned')
                until = time.monotonic() + LONG
                while not (os.path.exists(self.calls) and 'raw-tuned' in self.called('up')) and time.monotonic() < until:
                    time.sleep(0.02)
                time.sleep(0.2)
                (os.killpg if to_all else os.kill)(process.pid, number)
                process.communicate(timeout=LONG)
                self.assertNotEqual(process.returncode, 0)
                self.assertEqual(self.called('removed'), ['raw-tuned'])
                self.assertEqual(sorted(self.called('down')), ['pumice', 'raw'])
                self.assertEqual(os.listdir(self.work), [])
                os.remove(self.calls)

    def test_settings_of_drives_for_a_file(self) -> None:
        self.start(FAILING_UP='raw-tuned').communicate(timeout=LONG)
        with open(self.calls) as file:
            lines = {line.split()[2].rpartition('/')[2]: line for line in file if line.startswith('up')}
        for setting in ('bluestore prefer deferred size ssd', 'bluestore max blob size ssd'):
            self.assertEqual({name: setting in line for name, line in lines.items()}, {'raw': False, 'raw-tuned': True, 'pumice': False})
        self.assertIn('--raw', lines['raw-tuned'])
