"""A script that ends by a signal, and what it has started: `lab/worker.sh`."""
import os
import signal
import subprocess
import tempfile
import time
import unittest

WORKER = os.path.join(os.path.dirname(__file__), '..', 'lab', 'worker.sh')
LONG = 60

# As test.sh: something that `timeout` runs, in a subshell in the background, and a script with children of its own in the foreground.
SCRIPT = '''#!/usr/bin/env bash
set -uo pipefail
. "$WORKER"
finish() {
    trap - EXIT
    trap '' HUP INT TERM
    end_children
    echo finished >>"$CALLS"
}
trap finish EXIT
writer() { timeout 600 bash -c 'trap "$1" TERM; echo "$$" >>"$PIDS"; while :; do sleep 0.1; done' writer "$1"; }
writer 'exit 1' &
writer '' &
bash "$LAB"
'''

LAB = '''#!/usr/bin/env bash
# A daemon, which the script ends itself.
sleep 600 &
trap 'kill -0 $! && echo removed >>"$CALLS"; kill $!; exit 1' TERM
echo "$!" >>"$PIDS"
wait
'''


def is_alive(pid: int) -> bool:
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rpartition(') ')[2][0] not in 'ZX'
    except OSError:
        return False


class Worker(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = lambda name: os.path.join(folder.name, name)
        for name, text in (('script', SCRIPT), ('lab', LAB)):
            with open(self.at(name), 'w') as file:
                file.write(text)

    def lines(self, name: str) -> list[str]:
        try:
            with open(self.at(name)) as file:
                return file.read().split()
        except OSError:
            return []

    def test_a_signal_ends_what_subshells_have_started(self) -> None:
        environment = dict(os.environ, WORKER=WORKER, CALLS=self.at('calls'), PIDS=self.at('pids'), LAB=self.at('lab'), PATIENCE_END='1')
        process = subprocess.Popen(['bash', self.at('script')], env=environment, stderr=subprocess.DEVNULL)
        until = time.monotonic() + LONG
        while len(self.lines('pids')) < 3 and time.monotonic() < until:
            time.sleep(0.02)
        pids = [int(pid) for pid in self.lines('pids')]
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in pids if is_alive(pid)])
        self.assertEqual(len(pids), 3)
        process.send_signal(signal.SIGTERM)
        process.wait(LONG)
        self.assertEqual([pid for pid in pids if is_alive(pid)], [])
        # The script in the foreground has ended its own child.
        self.assertEqual(self.lines('calls'), ['removed', 'finished'])


if __name__ == '__main__':
    unittest.main()
