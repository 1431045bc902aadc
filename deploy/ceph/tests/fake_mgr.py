"""Stands in for Ceph's `mgr_module`: a manager with a store, options and a cluster that does what it is told."""

import errno
import json
import logging
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple


class CommandResult:
    def __init__(self, tag: str = '') -> None:
        self.ev = threading.Event()
        self.r, self.outb, self.outs = 0, '', ''

    def complete(self, code: int, out: str, error: str) -> None:
        self.r, self.outb, self.outs = code, out, error
        self.ev.set()


class HandleCommandResult(NamedTuple):
    retval: int = 0
    stdout: str = ''
    stderr: str = ''


class Option(dict):
    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name=name, **more)


def _as_it_is(_: str) -> Callable[[Any], Any]:
    return lambda function: function


CLIReadCommand = CLIWriteCommand = _as_it_is


class Cluster:
    """What stays when a manager ends: its store, and the cluster itself. OSDs 0 to 2."""

    def __init__(self) -> None:
        self.store: Dict[str, str] = {}
        self.options: Dict[str, Any] = {}
        self.flags: List[str] = ['sortbitwise']
        self.osds = {osd: {'osd': osd, 'up': 1, 'up_from': 5, 'weight': 1, 'state': ['exists', 'up'],
                           'public_addr': '10.0.0.%d:6801/1' % osd} for osd in range(3)}
        self.about = {str(osd): {'hostname': 'host%d' % osd, 'bluestore_bdev_dev_node': '/dev/loop%d' % osd} for osd in range(3)}
        self.log: List[str] = []
        # Prefixes of commands that fail, and of such that get no answer.
        self.failing: Dict[str, str] = {}
        self.silent: List[str] = []
        self.sent: List[Tuple[str, str]] = []
        self.pending: List[Callable[[], None]] = []
        # Called before a command is done: a test ends the manager here.
        self.before: Callable[[str], None] = lambda prefix: None
        self.after: Callable[[str], None] = lambda prefix: None

    def map(self) -> Dict[str, Any]:
        return {'flags': ','.join(self.flags), 'osds': list(self.osds.values())}

    def do(self, kind: str, to: str, command: Dict[str, Any]) -> Tuple[int, str, str]:
        prefix = command['prefix']
        if prefix in self.failing:
            return -errno.EPERM, '', self.failing[prefix]
        if prefix == 'osd dump':
            return 0, json.dumps(self.map()), ''
        if prefix == 'injectfull':
            state = self.osds[int(to)]['state']
            if command['type'] == 'full' and 'full' not in state:
                state.append('full')
            elif command['type'] == 'none' and 'full' in state:
                state.remove('full')
        elif prefix == 'osd reweight':
            if not isinstance(command['weight'], float):
                return -errno.EINVAL, '', "bad or missing field 'weight'"
            self.osds[command['id']]['weight'] = command['weight']
        elif prefix == 'osd set':
            self.flags += ['pauserd', 'pausewr']
        elif prefix == 'osd unset':
            self.flags = [flag for flag in self.flags if not flag.startswith('pause')]
        else:
            return -errno.EINVAL, '', 'no such command'
        return 0, '', ''


class MgrModule:
    class ClusterLogPrio:
        WARN = 3

    MODULE_OPTIONS: List[Option] = []

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.raised: Dict[str, Any] = {}
        self.history: List[Dict[str, Any]] = []
        self.log = logging.getLogger('fake')
        self.log.disabled = True

    def get_store(self, key: str) -> Optional[str]:
        return self.cluster.store.get(key)

    def set_store(self, key: str, value: str) -> None:
        self.cluster.store[key] = value

    def get_module_option(self, name: str) -> Any:
        default = next(option['default'] for option in self.MODULE_OPTIONS if option['name'] == name)
        return self.cluster.options.get(name, default)

    def get(self, what: str) -> Any:
        assert what == 'osd_map'
        return json.loads(json.dumps(self.cluster.map()))

    def get_metadata(self, kind: str, name: str) -> Optional[Dict[str, str]]:
        return self.cluster.about.get(name)

    def set_health_checks(self, raised: Dict[str, Any]) -> None:
        self.raised = raised
        self.history.append(raised)

    def cluster_log(self, channel: str, priority: int, message: str) -> None:
        self.cluster.log.append(message)

    def send_command(self, result: CommandResult, kind: str, to: str, command: str, tag: str) -> None:
        parsed = json.loads(command)
        prefix = parsed['prefix']
        self.cluster.sent.append((prefix, to))
        if prefix in self.cluster.silent:
            self.cluster.pending.append(lambda: result.complete(*self.cluster.do(kind, to, parsed)))
            return
        self.cluster.before(prefix)
        answer = self.cluster.do(kind, to, parsed)
        self.cluster.after(prefix)
        result.complete(*answer)
