"""From the status of drives to Ceph's health checks. Imports nothing of Ceph."""

from enum import IntEnum
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from .damage import Damage
from .drives import Answer, Drive, Unreachable


class Level(IntEnum):
    """How full a drive is, by the words that Ceph has for an OSD."""

    OK = 0
    NEARFULL = 1
    BACKFILLFULL = 2
    FULL = 3


# A drive packs frames anew by itself when less than 5 % of its segments is available, until that much is: used comes down to about
# 94.5 % of the limit (`wants_room` in the engine's `upkeep/decide.rs`). From the first of these shares of used on that is not fast
# enough, or gains less than was estimated; below the second one it is.
TIGHT_FROM, TIGHT_UNTIL = 0.98, 0.96


class Limits(NamedTuple):
    """Occupied / limit at which a level begins; it ends `hysteresis` below. Occupied is what stays in use when the drive has packed
    all frames anew, which it does before it refuses a write. By used, a level might never end: the drive packs no more than it
    needs."""

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
        if self.down_after < 1:
            return 'expected down_after >= 1'
        return None


def next_level(before: Level, occupied: float, limits: Limits) -> Level:
    """Level of a drive of which the share `occupied` is occupied, and which was at a level before."""
    level = Level.OK
    for candidate, begin in ((Level.NEARFULL, limits.nearfull), (Level.BACKFILLFULL, limits.backfillfull),
                             (Level.FULL, limits.full)):
        if occupied >= begin - (limits.hysteresis if candidate <= before else 0):
            level = candidate
    return level


class Watch:
    """What is remembered of the drive of one OSD from one round to the next."""

    def __init__(self, is_held_full: bool = False) -> None:
        """`is_held_full`: something was done because it was full before the manager restarted. Why is forgotten, so it ends as if
        that was in haste: when the drive is no longer nearly full."""
        self.answer: Answer = Unreachable('not asked yet')
        # The last drive that was seen, though it may be down now.
        self.drive: Optional[Drive] = None
        self.level = Level.FULL if is_held_full else Level.OK
        self.missed = 0
        self.down: Optional[str] = None
        self._used_at: Optional[float] = None
        # Its level by what is occupied.
        self._share = Level.NEARFULL if is_held_full else Level.OK
        # Full not by its share, but because it would have been soon.
        self._hasty = is_held_full
        # Full because a write gets little at once.
        self._tight = False

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
            before, self._share, self._hasty, self._tight = None, Level.OK, False, False
        expected = answer.used_ratio
        if before is not None and self._used_at is not None and now > self._used_at and answer.physical_limit:
            # Two looks close together see one burst, which is no trend.
            growth = (answer.physical_used - before.physical_used) / max(now - self._used_at, 1.0)
            expected += max(growth, 0.0) * horizon / answer.physical_limit
        self._used_at = now
        self._share = next_level(self._share, answer.occupied_ratio, limits)
        self._hasty = self._share >= Level.NEARFULL and (self._hasty or expected >= 1)
        self._tight = answer.used_ratio >= (TIGHT_UNTIL if self._tight else TIGHT_FROM)
        self.level = Level.FULL if answer.out_of_space or self._hasty or self._tight else self._share


def checks(watches: Dict[int, Watch], damage: Damage, failed: Sequence[str] = (), given_up: Sequence[str] = (),
           complaints: Sequence[str] = ()) -> Dict[str, Dict[str, Any]]:
    """The health checks to raise, as `MgrModule.set_health_checks` takes them. An OSD is in at most one of those about space.
    `failed`: protection that could not be done or taken back; `given_up`: such that an administrator took back; `complaints`: what
    keeps the module from watching all drives."""
    nearfull, full, down, corrupt = [], [], [], []
    for osd, watch in sorted(watches.items()):
        drive = watch.drive
        if watch.down is not None:
            down.append('osd.%d: %s' % (osd, watch.down))
        if drive is None:
            continue
        space = 'osd.%d: %s: %.1f %% of %s of physical space used, %.1f %% when frames are packed anew, ratio without zeros %s' % (
            osd, drive.path, 100 * drive.used_ratio, bytes_text(drive.physical_limit), 100 * drive.occupied_ratio,
            'unknown' if drive.expected_ratio is None else '%.2f' % drive.expected_ratio)
        if watch.level == Level.FULL:
            full.append(space + (', out of space' if drive.out_of_space else ''))
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
    if failed or given_up:
        raised['PUMICE_PROTECTION'] = {
            'severity': 'error' if failed else 'warning', 'count': len(failed) + len(given_up), 'detail': [*failed, *given_up],
            'summary': 'protection of full Pumice drives %s' % ('failed' if failed else 'was taken back by an administrator')}
    if complaints:
        raised['PUMICE_MODULE'] = {'severity': 'warning', 'count': len(complaints), 'detail': list(complaints),
                                   'summary': 'the module pumice cannot watch all drives as it was told to'}
    return raised


def bytes_text(count: float) -> str:
    """A size in powers of 1024, with two decimals."""
    for unit in ('B', 'KiB', 'MiB', 'GiB', 'TiB'):
        if abs(count) < 1024:
            return '%d B' % count if unit == 'B' else '%.2f %s' % (count, unit)
        count /= 1024
    return '%.2f PiB' % count
