"""From the status of drives to Ceph's health checks. Imports nothing of Ceph."""

from enum import IntEnum
from typing import Any, Dict, List, NamedTuple, Optional

from .drives import Answer, Drive, Unreachable


class Level(IntEnum):
    """How full a drive is, by the words that Ceph has for an OSD."""

    OK = 0
    NEARFULL = 1
    BACKFILLFULL = 2
    FULL = 3


class Limits(NamedTuple):
    """Used / limit at which a level begins; it ends `hysteresis` below."""

    nearfull: float = 0.85
    backfillfull: float = 0.90
    full: float = 0.95
    hysteresis: float = 0.02
    # Answers that have to be missing, one after another, for a drive to be down.
    down_after: int = 2

    def problem(self) -> Optional[str]:
        """What is wrong with them, if anything is."""
        if not 0 < self.nearfull <= self.backfillfull <= self.full <= 1:
            return 'expected 0 < nearfull_ratio <= backfillfull_ratio <= full_ratio <= 1'
        if not 0 <= self.hysteresis < self.nearfull:
            return 'expected 0 <= hysteresis < nearfull_ratio'
        return None


def next_level(before: Level, used: float, limits: Limits) -> Level:
    """Level of a drive of which the share `used` is used, and which was at a level before."""
    level = Level.OK
    for candidate, begin in ((Level.NEARFULL, limits.nearfull), (Level.BACKFILLFULL, limits.backfillfull),
                             (Level.FULL, limits.full)):
        if used >= begin - (limits.hysteresis if candidate <= before else 0):
            level = candidate
    return level


class Watch:
    """What is remembered of the drive of one OSD from one round to the next."""

    def __init__(self, is_held_full: bool = False) -> None:
        """`is_held_full`: its OSD was told to be full before the manager restarted. Why is forgotten, so it ends as if that was in
        haste: when the drive is no longer nearly full."""
        self.answer: Answer = Unreachable('not asked yet')
        # The last drive that was seen, though it may be down now.
        self.drive: Optional[Drive] = None
        self.level = Level.FULL if is_held_full else Level.OK
        self.missed = 0
        self.down: Optional[str] = None
        self._used_at: Optional[float] = None
        # FULL not by its share, but because it would have been full soon.
        self._hasty = is_held_full

    def see(self, answer: Answer, now: float, horizon: float, limits: Limits) -> None:
        """Takes in an answer of the time `now`. A drive that is nearly full and would be full within `horizon` seconds counts as
        full, because the next look would come too late; it does until it is no longer nearly full."""
        self.answer = answer
        if isinstance(answer, Unreachable):
            self.missed += 1
            if self.missed >= limits.down_after:
                self.down = answer.reason
            return
        self.missed = 0
        self.down = answer.trouble
        if answer.state == 'down':
            # It has no numbers.
            return
        before = self.drive
        self.drive = answer
        if before is not None and before.uuid != answer.uuid:
            before, self.level, self._hasty = None, Level.OK, False
        expected = answer.used_ratio
        if before is not None and self._used_at is not None and now > self._used_at and answer.physical_limit:
            growth = (answer.physical_used - before.physical_used) / (now - self._used_at)
            expected += max(growth, 0.0) * horizon / answer.physical_limit
        self._used_at = now
        # Not from a level that was reached in haste.
        from_level = min(self.level, Level.NEARFULL) if self._hasty else self.level
        self.level = next_level(from_level, answer.used_ratio, limits)
        self._hasty = self.level >= Level.NEARFULL and (self._hasty or expected >= 1)
        if answer.out_of_space or self._hasty:
            self.level = Level.FULL


class Damage:
    """Corruption that was found, and what of it has been dealt with. Kept over restarts of the manager, by the id of the drive."""

    def __init__(self, stored: Optional[Dict[str, Dict[str, int]]] = None) -> None:
        self._known: Dict[str, Dict[str, int]] = stored or {}

    def stored(self) -> Dict[str, Dict[str, int]]:
        """What to keep."""
        return self._known

    def see(self, drive: Drive) -> bool:
        """Takes in a status. Returns whether `stored` has changed."""
        count = drive.corrupt_records + drive.damaged_segments
        known = self._known.get(drive.uuid, {'seen': 0, 'settled': 0, 'scrub': 0})
        scrub = drive.scrub
        fresh = dict(known)
        if count > known['seen']:
            # Only a scrub that begins later says something about these.
            fresh.update(seen=count, scrub=scrub.started if scrub else 0)
        elif (scrub and scrub.state == 'finished' and not scrub.faults and scrub.started > known['scrub']):
            fresh['settled'] = known['seen']
        if fresh == known or not fresh['seen']:
            return False
        self._known[drive.uuid] = fresh
        return True

    def acknowledge(self, drive: Drive) -> None:
        """An administrator has dealt with all that was found."""
        count = drive.corrupt_records + drive.damaged_segments
        self._known[drive.uuid] = {'seen': count, 'settled': count,
                                   'scrub': drive.scrub.started if drive.scrub else 0}

    def of(self, drive: Drive) -> List[str]:
        """What is corrupt on a drive, in words."""
        known = self._known.get(drive.uuid)
        found = []
        if known and known['seen'] > known['settled']:
            found.append('%d corrupt records, %d damaged segments' % (drive.corrupt_records, drive.damaged_segments))
        if drive.missing:
            found.append('%d bytes of its backing are missing' % drive.missing)
        if drive.state == 'damaged' or (drive.state == 'read-only' and not drive.read_only_requested):
            found.append(drive.trouble or drive.state)
        return found


def checks(watches: Dict[int, Watch], damage: Damage) -> Dict[str, Dict[str, Any]]:
    """The health checks to raise, as `MgrModule.set_health_checks` takes them. An OSD is in at most one of those about space."""
    nearfull, full, down, corrupt = [], [], [], []
    for osd, watch in sorted(watches.items()):
        drive = watch.drive
        if watch.down is not None:
            down.append('osd.%d: %s' % (osd, watch.down))
        if drive is None:
            continue
        space = 'osd.%d: %s: %.1f %% of %s of physical space used, ratio %.2f' % (
            osd, drive.path, 100 * drive.used_ratio, bytes_text(drive.physical_limit), drive.compression_ratio)
        if watch.level == Level.FULL:
            full.append(space + (', writes are refused' if drive.out_of_space else ''))
        elif watch.level >= Level.NEARFULL:
            nearfull.append(space)
        corrupt += ['osd.%d: %s: %s' % (osd, drive.path, what) for what in damage.of(drive)]
    raised = {}
    for name, severity, detail, text in (
            ('PUMICE_NEARFULL', 'warning', nearfull, 'near the end of physical space'),
            ('PUMICE_FULL', 'error', full, 'out of physical space, or about to be'),
            ('PUMICE_DOWN', 'warning', down, 'not reachable, or not accepting requests'),
            ('PUMICE_CORRUPT', 'error', corrupt, 'found corrupt data')):
        if detail:
            count = len({line.split(':')[0] for line in detail})
            raised[name] = {'severity': severity, 'count': count, 'detail': detail,
                            'summary': '%d Pumice drive%s %s' % (count, '' if count == 1 else 's', text)}
    return raised


def bytes_text(count: float) -> str:
    """A size in powers of 1024, with two decimals."""
    for unit in ('B', 'KiB', 'MiB', 'GiB', 'TiB'):
        if abs(count) < 1024:
            return '%d B' % count if unit == 'B' else '%.2f %s' % (count, unit)
        count /= 1024
    return '%.2f PiB' % count
