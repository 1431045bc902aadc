"""Ceph's manager module: physical space and health of the Pumice drives under OSDs."""

import errno
import json
import socket
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from mgr_module import CLIReadCommand, CLIWriteCommand, CommandResult, HandleCommandResult, MgrModule, Option

from .askers import Askers
from .damage import Damage
from .drives import Place, Unreachable, attached_paths, parse_map
from .health import Level, Limits, Watch, checks
from .notes import Notes
from .places import Patterns, host_of
from .protect import MODES, NAMES, Action, Reweight, Seen, SetPause, Tell, plan, succeeded
from .table import rows, text

# Time from a look at a drive until clients have stopped to write: the OSD tells the monitor, the monitor everybody. With the
# time until the next look it is how long a drive has to last at its present growth.
REACTION_SECONDS = 10
# How long drives have for their answers, and all commands of a round together for theirs. What comes later is waited for in later
# rounds.
ASK_SECONDS_MAX = 5
COMMANDS_SECONDS = 10
REWEIGHT_TO = 0.8
# Of an OSD that was watched, and may be meant by a word that is not understood.
NOT_NAMED = Unreachable("not asked: the option 'drives' does not name it, and has words that are not understood")


class Sent(NamedTuple):
    """A command that was sent to the cluster."""

    result: CommandResult
    at: float


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
        Option('nearfull_ratio', type='float', default=0.85, runtime=True, desc='occupied / limit from which PUMICE_NEARFULL is raised'),
        Option('backfillfull_ratio', type='float', default=0.90, runtime=True,
               desc='occupied / limit from which `ceph pumice status` shows backfillfull'),
        Option('full_ratio', type='float', default=0.95, runtime=True, desc='occupied / limit from which PUMICE_FULL is raised'),
        Option('hysteresis', type='float', default=0.02, runtime=True, desc='how far below a ratio its level ends'),
        Option('down_after', type='uint', default=2, runtime=True, desc='answers missed for PUMICE_DOWN'),
        Option('protect', type='str', default='osd-full', enum_allowed=list(MODES), runtime=True,
               desc='what to do to an OSD whose drive is full: none; reweight; osd-full: it reports itself full; '
                    'cluster-pause: the flag `pause`'),
        Option('reweight_to', type='float', default=REWEIGHT_TO, runtime=True,
               desc='share of its weight that an OSD keeps (protect = reweight), above 0 and below 1'),
    ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wake = threading.Event()
        self._ended = False
        # For what commands read and change: `_watches`, `_damage`, `_notes`.
        self._lock = threading.Lock()
        # Held while `_damage` is put into the store, so that an older state never replaces a newer one. Taken before `_lock`.
        self._store_lock = threading.Lock()
        self._watches: Dict[int, Watch] = {}
        self._damage = Damage(self._load('damage'))
        self._notes = Notes(self._load('notes'))
        self._askers = Askers()
        self._looked_at: Optional[float] = None
        # Commands without an answer yet, by whom they are for.
        self._outstanding: Dict[Tuple[str, str], Sent] = {}
        # What the last round could not do.
        self._complaints: List[str] = []
        self._failed: List[str] = []

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
            began = time.monotonic()
            complaints: List[str] = []
            try:
                self._round(complaints)
            except Exception as error:  # a round that fails must not be the last one
                self.log.exception('round failed')
                complaints.append('a round failed: %s: %s' % (type(error).__name__, error))
            # Those of the last round until then, so that none comes and goes.
            self._complaints = complaints
            try:
                self._publish()
            except Exception:  # what was raised stays
                self.log.exception('no health checks')
            self._wake.wait(max(1.0, self._interval() - (time.monotonic() - began)))
            if not self._ended:
                # Options are often set one after the other: all that come within a second have one round.
                time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
            self._wake.clear()

    def _interval(self) -> float:
        return max(1, self.get_module_option('interval'))

    def _publish(self) -> None:
        """Raises what is known, also after a round that failed."""
        with self._lock:
            raised = checks(self._watches, self._damage, self._failed, self._notes.overruled(), self._complaints)
        self.set_health_checks(raised)

    def _round(self, complaints: List[str]) -> None:
        limits, interval = self._limits(complaints), self._interval()
        osd_map = self.get('osd_map')
        places, unknown, problems = self._places(osd_map)
        complaints += problems
        answers = {**self._askers.ask_all(places, min(interval, ASK_SECONDS_MAX)), **unknown}
        now = time.monotonic()
        # The next look may take as long as this one.
        horizon = max(interval, now - self._looked_at if self._looked_at else 0) + REACTION_SECONDS
        self._looked_at = now
        with self._lock:
            causes = self._notes.causes()
            watched = {*places, *unknown}
            if problems:
                # What is not understood may be about an OSD that was watched.
                watched |= {*self._watches, *causes} & {osd['osd'] for osd in osd_map['osds']}
            self._watches = {osd: self._watches.get(osd) or Watch(osd in causes) for osd in watched}
            changed = False
            for osd, watch in self._watches.items():
                # Whoever is watched is seen or missed: nothing old is shown as if it were true.
                watch.see(answers.get(osd, NOT_NAMED), now, horizon, limits)
                if watch.drive:
                    changed |= self._damage.see(watch.drive)
            levels = {osd: watch.level if watch.drive else None for osd, watch in self._watches.items()}
        if changed:
            self._keep_damage()
        # Before commands that may take their time.
        self._publish()
        self._protect(levels, complaints)

    def _keep_damage(self) -> None:
        with self._store_lock:
            with self._lock:
                damage = json.dumps(self._damage.stored())
            self.set_store('damage', damage)

    def _limits(self, complaints: List[str]) -> Limits:
        option = self.get_module_option
        limits = Limits(option('nearfull_ratio'), option('backfillfull_ratio'), option('full_ratio'),
                        option('hysteresis'), option('down_after'))
        problem = limits.problem()
        if problem:
            complaints.append(problem + '; the defaults are used')
            return Limits()
        return limits

    def _places(self, osd_map: Dict[str, Any]) -> Tuple[Dict[int, Place], Dict[int, Unreachable], List[str]]:
        """Where the drive of each OSD is: by `drives`; else by `address`, with the path by `path`, or as it is attached here. OSDs
        for which that cannot be said, and why. And what of these options is not understood."""
        existing = {osd['osd']: osd for osd in osd_map['osds']}
        listed, problems = parse_map(self.get_module_option('drives') or '')
        places = {osd: place for osd, place in listed.items() if osd in existing}
        unknown: Dict[int, Unreachable] = {}
        patterns = Patterns(self.get_module_option('address') or '', self.get_module_option('path') or '')
        if not patterns.address:
            return places, unknown, problems
        problem = patterns.problem()
        if problem:
            problems.append(problem)
        attached, here = attached_paths(), socket.gethostname()
        for osd in sorted(existing.keys() - places.keys()):
            address = existing[osd].get('public_addr') or ''
            host = host_of(address)
            if host is None and not existing[osd]['up']:
                # It has a number, and has never been started: it is nowhere yet.
                continue
            if problem:
                unknown[osd] = Unreachable('not asked: ' + problem)
            elif host is None:
                unknown[osd] = Unreachable("not asked: it is up, and '%s' in the map is not its address" % address)
            else:
                about = self.get_metadata('osd', str(osd)) or {}
                # Devices of other machines have the same names.
                device = about.get('bluestore_bdev_dev_node', '') if about.get('hostname') == here else ''
                found = patterns.place(osd, host, about.get('hostname'), attached.get(device))
                if isinstance(found, Place):
                    places[osd] = found
                else:
                    unknown[osd] = found
        return places, unknown, problems

    def _protect(self, levels: Dict[int, Optional[Level]], complaints: List[str]) -> None:
        mode, reweight_to = self.get_module_option('protect'), self.get_module_option('reweight_to')
        if not 0 < reweight_to < 1:
            complaints.append('invalid reweight_to %g: expected more than 0 and less than 1; %g is used'
                              % (reweight_to, REWEIGHT_TO))
            reweight_to = REWEIGHT_TO
        failed: List[str] = []
        if self._notes.causes() or (mode != 'none' and Level.FULL in levels.values()):
            try:
                failed = self._act_by_plan(mode, levels, reweight_to)
            except Exception as error:
                self._failed = ['%s: %s' % (type(error).__name__, error)]
                raise
        self._failed = failed

    def _act_by_plan(self, mode: str, levels: Dict[int, Optional[Level]], reweight_to: float) -> List[str]:
        """Does what is to be done now. Returns what could not be."""
        # The manager's own copy of the map may be older than what this module did a moment ago, which would look as if somebody
        # else had taken it back.
        until = time.monotonic() + COMMANDS_SECONDS
        asked = self._send({('mon', ''): {'prefix': 'osd dump', 'format': 'json'}}, until)[('mon', '')]
        if asked[0]:
            return ['the state of the cluster is not known: %s' % (asked[2] or 'error %d' % asked[0])]
        seen = look(json.loads(asked[1]))
        failed = []
        busy = self._unanswered(seen)
        for osd, sent in busy.items():
            if osd in seen.up_from:
                failed.append('osd.%d: no answer for %.0f seconds' % (osd, time.monotonic() - sent.at))
        seen = seen._replace(busy=frozenset(busy))
        with self._lock:
            before = json.dumps(self._notes.stored())
            actions = plan(mode, levels, seen, self._notes, reweight_to)
        self._keep_notes(before)
        # Those to monitors one after the other, those to OSDs together: each may be about to die.
        for batch in [[action] for action in actions if not isinstance(action, Tell)] + [
                [action for action in actions if isinstance(action, Tell)]]:
            answers = self._send(dict(command_of(action) for action in batch), until)
            for action in batch:
                code, _, error = answers[command_of(action)[0]]
                if code:
                    failed.append('%s: failed: %s' % (describe(action), error or 'error %d' % code))
                    self.log.error('%s', failed[-1])
                    continue
                with self._lock:
                    before = json.dumps(self._notes.stored())
                    succeeded(action, self._notes)
                self._keep_notes(before)
                self.cluster_log('cluster', self.ClusterLogPrio.WARN, 'pumice: %s' % describe(action))
        return failed

    def _unanswered(self, seen: Seen) -> Dict[int, Sent]:
        """OSDs that owe an answer, and the commands. Those that were removed from the cluster owe none."""
        self._outstanding = {to: sent for to, sent in self._outstanding.items() if to[0] != 'osd' or int(to[1]) in seen.weights}
        return {int(to): sent for (kind, to), sent in sorted(self._outstanding.items())
                if kind == 'osd' and not sent.result.ev.is_set()}

    def _keep_notes(self, before: str) -> None:
        with self._lock:
            after = json.dumps(self._notes.stored())
        if after != before:
            self.set_store('notes', after)

    def _send(self, commands: Dict[Tuple[str, str], Dict[str, Any]], until: float) -> Dict[Tuple[str, str], Tuple[int, str, str]]:
        """Sends a command to each daemon, and waits for all answers together, to a time. Who has not answered the last one gets no
        other."""
        answers = {}
        for to, command in commands.items():
            last, now = self._outstanding.get(to), time.monotonic()
            if last and not last.result.ev.is_set():
                answers[to] = (-errno.ETIMEDOUT, '', 'no answer for %.0f seconds' % (now - last.at))
            elif now >= until:
                answers[to] = (-errno.ETIMEDOUT, '', 'not sent: others took all of %g seconds' % COMMANDS_SECONDS)
            else:
                sent = self._outstanding[to] = Sent(CommandResult(''), now)
                self.send_command(sent.result, to[0], to[1], json.dumps(command), '')
        for to in commands.keys() - answers.keys():
            result = self._outstanding[to].result
            # A daemon that dies now answers never.
            if result.ev.wait(max(until - time.monotonic(), 0)):
                answers[to] = (result.r, result.outb, result.outs)
                del self._outstanding[to]
            else:
                answers[to] = (-errno.ETIMEDOUT, '', 'no answer within %g seconds' % COMMANDS_SECONDS)
        return answers

    @CLIReadCommand('pumice status')
    def _status(self, format: Optional[str] = None) -> HandleCommandResult:
        """Show the drives of OSDs: logical and physical space, ratio, time to full"""
        with self._lock:
            if format and format.startswith('json'):
                answer = {'osds': rows(self._watches), 'protect': self.get_module_option('protect'),
                          'done': self._notes.stored(),
                          'checks': checks(self._watches, self._damage, self._failed, self._notes.overruled(), self._complaints)}
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
        self._keep_damage()
        self._wake.set()
        return HandleCommandResult()


def look(osd_map: Dict[str, Any]) -> Seen:
    """The cluster by its map."""
    names = {name: level for level, name in NAMES.items()}
    osds = osd_map['osds']
    return Seen(
        up_from={osd['osd']: osd['up_from'] for osd in osds if osd['up']},
        weights={osd['osd']: float(osd['weight']) for osd in osds},
        levels={osd['osd']: max((names.get(state, Level.OK) for state in osd['state']), default=Level.OK) for osd in osds},
        pause_flag='pausewr' in osd_map['flags'].split(','))


def command_of(action: Action) -> Tuple[Tuple[str, str], Dict[str, Any]]:
    """To whom which command is sent for an action."""
    if isinstance(action, Tell):
        return ('osd', str(action.osd)), {'prefix': 'injectfull', 'type': NAMES[action.level], 'count': -1 if action.level else 0}
    if isinstance(action, Reweight):
        # Not 1: to a monitor that is no number with a fraction.
        return ('mon', ''), {'prefix': 'osd reweight', 'id': action.osd, 'weight': float(action.weight)}
    return ('mon', ''), {'prefix': 'osd set' if action.pause else 'osd unset', 'key': 'pause'}


def describe(action: Action) -> str:
    """An action in words, for the log of the cluster."""
    if isinstance(action, SetPause):
        return 'flag pause %s' % ('set: a drive is full' if action.pause else 'removed')
    if isinstance(action, Reweight):
        return 'osd.%d gets weight %g' % (action.osd, action.weight)
    return 'osd.%d reports itself %s' % (action.osd, 'as full as it is' if action.level == Level.OK else NAMES[action.level])
