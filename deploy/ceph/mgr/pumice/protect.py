"""What to do to OSDs whose drives are full, and to undo it. Imports nothing of Ceph."""

from typing import Any, Dict, List, NamedTuple, Optional, Set, Union

from .health import Level

MODES = ('none', 'reweight', 'osd-full', 'cluster-pause')
# Names of levels, as an OSD takes and shows them.
NAMES = {Level.OK: 'none', Level.NEARFULL: 'nearfull', Level.BACKFILLFULL: 'backfillfull', Level.FULL: 'full'}


class Reweight(NamedTuple):
    """Give an OSD a share of its data, 0 to 1."""

    osd: int
    weight: float


class Tell(NamedTuple):
    """Let an OSD report itself as full as `level` says."""

    osd: int
    level: Level


class SetPause(NamedTuple):
    """Set or remove the flags of the cluster that stop all reads and writes. There is none for writes alone."""

    pause: bool


Action = Union[Reweight, Tell, SetPause]


class Seen(NamedTuple):
    """The cluster as it is."""

    # OSDs that are up.
    up: Set[int]
    # Their weights (`ceph osd reweight`), also of those that are down.
    weights: Dict[int, float]
    # How full OSDs are according to the cluster.
    levels: Dict[int, Level]
    pause_flag: bool


class Done:
    """What the module has done, and so may undo. Kept over restarts of the manager."""

    def __init__(self, stored: Optional[Dict[str, Any]] = None) -> None:
        stored = stored or {}
        self.pause_flag = bool(stored.get('pause_flag'))
        # By OSD: the weight before, and the one given.
        self.weights: Dict[int, List[float]] = {int(osd): list(both) for osd, both in stored.get('weights', {}).items()}
        self.told: Dict[int, Level] = {int(osd): Level(level) for osd, level in stored.get('told', {}).items()}

    def stored(self) -> Dict[str, Any]:
        """What to keep."""
        return {'pause_flag': self.pause_flag, 'weights': self.weights,
                'told': {osd: int(level) for osd, level in self.told.items()}}

    def apply(self, action: Action, seen: Seen) -> None:
        """Takes note of an action that succeeded."""
        if isinstance(action, SetPause):
            self.pause_flag = action.pause
        elif isinstance(action, Tell):
            if action.level == Level.OK:
                self.told.pop(action.osd, None)
            else:
                self.told[action.osd] = action.level
        elif action.osd in self.weights:
            del self.weights[action.osd]
        else:
            self.weights[action.osd] = [seen.weights[action.osd], action.weight]


def plan(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, done: Done, reweight_to: float) -> List[Action]:
    """What to do now so that drives which are full, by their levels, are protected as `mode` says, and what was done for others,
    or by another mode, is undone. `levels` has all OSDs that are watched; None: not known at present, so nothing is changed.
    A change that somebody else has made is left alone."""
    return _flag(mode, levels, seen, done) + _weights(mode, levels, seen, done, reweight_to) + _told(mode, levels, seen, done)


def _flag(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, done: Done) -> List[Action]:
    if mode == 'cluster-pause':
        if Level.FULL in levels.values():
            # A flag that is set already belongs to whoever set it.
            return [] if seen.pause_flag else [SetPause(True)]
        if None in levels.values():
            return []
    # Also if it was removed by hand: then only the note of it goes.
    return [SetPause(False)] if done.pause_flag else []


def _weights(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, done: Done, reweight_to: float) -> List[Action]:
    actions: List[Action] = []
    if mode == 'reweight':
        for osd, level in sorted(levels.items()):
            if level == Level.FULL and osd not in done.weights and seen.weights.get(osd, 0) > 0:
                actions.append(Reweight(osd, round(seen.weights[osd] * reweight_to, 4)))
    for osd, (before, given) in sorted(done.weights.items()):
        level = levels.get(osd, Level.OK)
        # Back when it is well below full, or data would come back at once.
        if mode == 'reweight' and (level is None or level >= Level.NEARFULL) and osd in seen.weights:
            continue
        if osd in seen.weights and abs(seen.weights[osd] - given) < 0.001:
            actions.append(Reweight(osd, before))
        else:
            del done.weights[osd]
    return actions


def _told(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, done: Done) -> List[Action]:
    actions: List[Action] = []
    for osd in sorted(seen.up & (set(levels) | set(done.told))):
        level = levels.get(osd, Level.OK) if mode == 'osd-full' else Level.OK
        told = done.told.get(osd, Level.OK)
        # Full or nothing: what an OSD is told takes the place of what it finds itself, so a lower level could hide that it is
        # full by its own count.
        wanted = told if level is None else Level.FULL if level == Level.FULL else Level.OK
        # An OSD that was restarted has forgotten it. One that is full by itself is left alone.
        if wanted != told or wanted > seen.levels.get(osd, Level.OK):
            actions.append(Tell(osd, wanted))
    return actions
