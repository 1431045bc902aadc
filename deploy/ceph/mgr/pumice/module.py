"""Ceph's manager module: physical space and health of the Pumice drives under OSDs."""

import errno
import json
import threading
import time
from typing import Any, Dict, List, Optional

from mgr_module import CLIReadCommand, CLIWriteCommand, CommandResult, HandleCommandResult, MgrModule, Option

from .drives import Place, ask_all, attached_paths, parse_map
from .health import Damage, Level, Limits, Watch, checks
from .protect import MODES, NAMES, Action, Done, Reweight, Seen, SetPause, Tell, plan
from .table import rows, text

# Time from a look at a drive until clients have stopped to write: the OSD tells the monitor, the monitor everybody. With the
# time until the next look it is how long a drive has to last at its present growth.
REACTION_SECONDS = 10


class Module(MgrModule):
    """See deploy/ceph/README.md."""

    # Nothing that the manager could report is waited for.
    NOTIFY_TYPES: List[Any] = []

    MODULE_OPTIONS = [
        Option('interval', type='secs', default=5, runtime=True, desc='seconds between two looks at the drives'),
        Option('drives', type='str', default='', runtime=True,
               desc='drives of OSDs: words OSD=HOST:PORT or OSD=HOST:PORT#PATH, HOST:PORT being the HTTP address of the server'),
        Option('address', type='str', default='', runtime=True,
               desc='HTTP address of the server for OSDs that are not in `drives`; {host} is the address of the OSD'),
        Option('path', type='str', default='', runtime=True,
               desc='path of the drive for OSDs that are not in `drives`; {id} is the number of the OSD, {host} its host name'),
        Option('nearfull_ratio', type='float', default=0.85, runtime=True, desc='used / limit from which PUMICE_NEARFULL is raised'),
        Option('backfillfull_ratio', type='float', default=0.90, runtime=True,
               desc='used / limit from which `ceph pumice status` shows backfillfull'),
        Option('full_ratio', type='float', default=0.95, runtime=True, desc='used / limit from which PUMICE_FULL is raised'),
        Option('hysteresis', type='float', default=0.02, runtime=True, desc='how far below a ratio its level ends'),
        Option('down_after', type='uint', default=2, runtime=True, desc='answers missed for PUMICE_DOWN'),
        Option('protect', type='str', default='osd-full', enum_allowed=list(MODES), runtime=True,
               desc='what to do to an OSD whose drive is full: none; reweight; osd-full: it reports itself full; '
                    'cluster-pause: the flag `pause`'),
        Option('reweight_to', type='float', default=0.8, runtime=True, desc='share of its weight that an OSD keeps (protect = reweight)'),
    ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wake = threading.Event()
        self._ended = False
        # For `_watches` and `_damage`, which commands read.
        self._lock = threading.Lock()
        self._watches: Dict[int, Watch] = {}
        self._damage = Damage(self._load('damage'))
        self._done = Done(self._load('done'))
        self._complaint: Optional[str] = None

    def _load(self, key: str) -> Optional[Dict[str, Any]]:
        try:
            return json.loads(self.get_store(key) or 'null')
        except ValueError:
            self.log.error('%s in the store of the module is no JSON; it is forgotten', key)
            return None

    def config_notify(self) -> None:
        self._wake.set()

    def shutdown(self) -> None:
        self._ended = True
        self._wake.set()

    def serve(self) -> None:
        while not self._ended:
            try:
                self._round()
                self._complain(None)
            except Exception as error:  # a round that fails must not be the last one
                self.log.exception('round failed')
                self._complain(str(error))
            self._wake.wait(max(1, self.get_module_option('interval')))
            self._wake.clear()

    def _complain(self, what: Optional[str]) -> None:
        if what is not None and what != self._complaint:
            self.set_health_checks({'PUMICE_MODULE': {
                'severity': 'warning', 'summary': 'the module pumice cannot watch drives', 'count': 1, 'detail': [what]}})
        self._complaint = what

    def _limits(self) -> Limits:
        option = self.get_module_option
        limits = Limits(option('nearfull_ratio'), option('backfillfull_ratio'), option('full_ratio'),
                        option('hysteresis'), option('down_after'))
        problem = limits.problem()
        if problem:
            raise ValueError(problem)
        return limits

    def _round(self) -> None:
        limits, interval = self._limits(), max(1, self.get_module_option('interval'))
        osd_map = self.get('osd_map')
        places = self._places(osd_map)
        answers = ask_all(places, timeout=max(1, min(interval, 5)))
        now = time.monotonic()
        with self._lock:
            self._watches = {osd: self._watches.get(osd) or Watch(osd in self._done.told) for osd in places}
            changed = False
            for osd, watch in self._watches.items():
                watch.see(answers[osd], now, interval + REACTION_SECONDS, limits)
                if watch.drive:
                    changed |= self._damage.see(watch.drive)
            if changed:
                self.set_store('damage', json.dumps(self._damage.stored()))
            raised = checks(self._watches, self._damage)
            levels = {osd: watch.level if watch.drive else None for osd, watch in self._watches.items()}
        self.set_health_checks(raised)
        self._protect(levels, osd_map)

    def _places(self, osd_map: Dict[str, Any]) -> Dict[int, Place]:
        """Where the drive of each OSD is: by `drives`; else by `address`, with the path by `path`, or as it is attached here."""
        existing = {osd['osd']: osd for osd in osd_map['osds']}
        places = {osd: place for osd, place in parse_map(self.get_module_option('drives') or '').items() if osd in existing}
        address, path = self.get_module_option('address'), self.get_module_option('path')
        if address:
            attached = attached_paths()
            for osd in existing.keys() - places.keys():
                about = self.get_metadata('osd', str(osd)) or {}
                host = existing[osd]['public_addr'].rpartition(':')[0]
                found = attached.get(about.get('bluestore_bdev_dev_node', ''))
                if path:
                    found = path.format(id=osd, host=about.get('hostname', ''))
                places[osd] = Place(address.format(host=host), found)
        return places

    def _protect(self, levels: Dict[int, Optional[Level]], osd_map: Dict[str, Any]) -> None:
        names = {name: level for level, name in NAMES.items()}
        seen = Seen(
            up={osd['osd'] for osd in osd_map['osds'] if osd['up']},
            weights={osd['osd']: osd['weight'] for osd in osd_map['osds']},
            levels={osd['osd']: max((names.get(state, Level.OK) for state in osd['state']), default=Level.OK)
                    for osd in osd_map['osds']},
            pause_flag='pausewr' in osd_map['flags'].split(','))
        before = json.dumps(self._done.stored())
        for action in plan(self.get_module_option('protect'), levels, seen, self._done,
                           self.get_module_option('reweight_to')):
            problem = self._act(action)
            if problem:
                self.log.error('%s: %s', action, problem)
            else:
                self._done.apply(action, seen)
                self.cluster_log('cluster', self.ClusterLogPrio.WARN, 'pumice: %s' % describe(action))
        after = json.dumps(self._done.stored())
        if after != before:
            self.set_store('done', after)

    def _act(self, action: Action) -> Optional[str]:
        """Does it. Returns what went wrong."""
        if isinstance(action, Tell):
            command = {'prefix': 'injectfull', 'type': NAMES[action.level], 'count': -1 if action.level else 0}
            code, _, error = self._osd_command(str(action.osd), command)
        elif isinstance(action, Reweight):
            code, _, error = self.mon_command({'prefix': 'osd reweight', 'id': action.osd, 'weight': action.weight})
        else:
            code, _, error = self.mon_command({'prefix': 'osd set' if action.pause else 'osd unset', 'key': 'pause'})
        return error or str(code) if code else None

    def _osd_command(self, osd: str, command: Dict[str, Any]) -> Any:
        """Sends a command to an OSD, and waits for the answer."""
        result = CommandResult('')
        self.send_command(result, 'osd', osd, json.dumps(command), '')
        # An OSD that dies now answers never.
        if not result.ev.wait(5):
            return -errno.ETIMEDOUT, '', 'no answer'
        return result.r, result.outb, result.outs

    @CLIReadCommand('pumice status')
    def _status(self, format: Optional[str] = None) -> HandleCommandResult:
        """Show the drives of OSDs: logical and physical space, ratio, time to full"""
        with self._lock:
            if format and format.startswith('json'):
                answer = {'osds': rows(self._watches), 'protect': self.get_module_option('protect'),
                          'done': self._done.stored(), 'checks': checks(self._watches, self._damage)}
                return HandleCommandResult(stdout=json.dumps(answer, indent=2 if 'pretty' in format else None))
            return HandleCommandResult(stdout=text(self._watches, self._damage))

    @CLIWriteCommand('pumice acknowledge')
    def _acknowledge(self, osd: int) -> HandleCommandResult:
        """Clear PUMICE_CORRUPT of an OSD whose corruption was dealt with, until more is found"""
        with self._lock:
            watch = self._watches.get(osd)
            if watch is None or watch.drive is None:
                return HandleCommandResult(retval=-errno.ENOENT, stderr='osd.%d: no drive is known' % osd)
            self._damage.acknowledge(watch.drive)
            self.set_store('damage', json.dumps(self._damage.stored()))
        self._wake.set()
        return HandleCommandResult()


def describe(action: Action) -> str:
    """An action in words, for the log of the cluster."""
    if isinstance(action, SetPause):
        return 'flag pause %s' % ('set: a drive is full' if action.pause else 'removed')
    if isinstance(action, Reweight):
        return 'osd.%d gets weight %g' % (action.osd, action.weight)
    return 'osd.%d reports itself %s' % (action.osd, 'as full as it is' if action.level == Level.OK else NAMES[action.level])
