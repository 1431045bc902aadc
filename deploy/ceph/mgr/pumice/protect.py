"""What to do to OSDs whose drives are full, and to undo it. Imports nothing of Ceph."""

from typing import Dict, FrozenSet, List, NamedTuple, Optional, Union

from .health import Level
from .notes import ANSWERED, ASKED, OVERRULED, RETURNING, SEEN, Note, Notes

MODES = ('none', 'reweight', 'osd-full', 'cluster-pause')
# Rounds that an OSD has for showing that it is full, before it is told again.
PATIENCE_ROUNDS = 5
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

    # OSDs that are up, and the epoch at which each started.
    up_from: Dict[int, int]
    # Their weights (`ceph osd reweight`), also of those that are down.
    weights: Dict[int, float]
    # How full OSDs are according to the cluster.
    levels: Dict[int, Level]
    pause_flag: bool
    # OSDs that have not answered yet what they were told: it may still be done, also by one that restarts.
    busy: FrozenSet[int] = frozenset()


def plan(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, notes: Notes, reweight_to: float) -> List[Action]:
    """What to do now so that drives which are full, by their levels, are protected as `mode` says, and what was done for others,
    or by another mode, is taken back. Each action is in the notes already; they have to be kept before anything is done.

    `levels` has all OSDs that are watched. None: not known; what was done because such a drive was full stays, and nothing is done
    because of it. What an administrator has set is not taken back; what he took back is not set again until its cause has ended
    once."""
    return _flag(mode, levels, seen, notes) + _weights(mode, levels, seen, notes, reweight_to) + _told(mode, levels, seen, notes)


def succeeded(action: Action, notes: Notes) -> None:
    """Takes note of an action that was done."""
    if isinstance(action, SetPause):
        if action.pause and notes.pause:
            notes.pause.state = SEEN
        else:
            notes.pause = None
    elif isinstance(action, Tell):
        if action.level == Level.FULL:
            notes.told[action.osd].state = ANSWERED
        else:
            del notes.told[action.osd]
    elif notes.weights[action.osd].state == RETURNING:
        del notes.weights[action.osd]
    else:
        notes.weights[action.osd].state = SEEN


def _flag(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, notes: Notes) -> List[Action]:
    note = notes.pause
    causes = {osd for osd, level in levels.items() if level == Level.FULL and osd in seen.weights}
    # One that was full and is not known now may be full still.
    causes |= {osd for osd in (note.more['causes'] if note else ())
               if osd in seen.weights and osd in levels and levels[osd] is None}
    if mode == 'cluster-pause' and causes:
        if note is None:
            if seen.pause_flag:
                # It belongs to whoever set it.
                return []
            note = notes.pause = Note(ASKED)
        note.more['causes'] = sorted(causes)
        if note.state != OVERRULED:
            if seen.pause_flag:
                note.state = SEEN
            elif note.state == SEEN:
                note.state = OVERRULED
            else:
                note.state = ASKED
        return [SetPause(True)] if note.state == ASKED else []
    if note is None:
        return []
    if note.state == OVERRULED or not seen.pause_flag:
        notes.pause = None
        return []
    note.state = RETURNING
    return [SetPause(False)]


def _weights(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, notes: Notes, reweight_to: float) -> List[Action]:
    actions: List[Action] = []
    for osd in sorted({*levels, *notes.weights}):
        note, level, weight = notes.weights.get(osd), levels.get(osd, Level.OK), seen.weights.get(osd)
        if weight is None:
            # It was removed.
            notes.weights.pop(osd, None)
            continue
        if note is None:
            # One that is out stays so.
            if mode == 'reweight' and level == Level.FULL and weight > 0:
                given = round(weight * reweight_to, 4)
                notes.weights[osd] = Note(ASKED, before=weight, given=given)
                actions.append(Reweight(osd, given))
            continue
        # Back when it is well below full, or data would come back at once.
        has_cause = mode == 'reweight' and (level is None or level >= Level.NEARFULL)
        if note.state == OVERRULED:
            if not has_cause:
                del notes.weights[osd]
        elif weight == 0:
            # Out because it was down for long. It comes in again with the weight that it had.
            pass
        elif is_near(weight, note.more['given']):
            note.state = SEEN if has_cause else RETURNING
            if not has_cause:
                actions.append(Reweight(osd, note.more['before']))
        elif not has_cause:
            # Never done, or taken back already, or changed by somebody else.
            del notes.weights[osd]
        elif note.state in (ASKED, RETURNING) and is_near(weight, note.more['before']):
            note.state = ASKED
            actions.append(Reweight(osd, note.more['given']))
        else:
            note.state = OVERRULED
    return actions


def _told(mode: str, levels: Dict[int, Optional[Level]], seen: Seen, notes: Notes) -> List[Action]:
    actions: List[Action] = []
    for osd in sorted({*levels, *notes.told}):
        note, level, up_from = notes.told.get(osd), levels.get(osd, Level.OK), seen.up_from.get(osd)
        # Full or nothing: what an OSD is told takes the place of what it finds itself, so a lower level could hide that it is
        # full by its own count.
        has_cause = mode == 'osd-full' and (level == Level.FULL or (level is None and note is not None))
        is_full = seen.levels.get(osd, Level.OK) >= Level.FULL
        if osd not in seen.weights:
            notes.told.pop(osd, None)
        elif up_from is None or osd in seen.busy:
            # It cannot be told anything now, and what there is to take back is not known.
            pass
        elif note is None:
            # One that is full by itself, or by an administrator's word, is left alone.
            if has_cause and not is_full:
                notes.told[osd] = Note(ASKED, up_from=up_from, rounds=0)
                actions.append(Tell(osd, Level.FULL))
        elif not has_cause:
            restarted = note.more['up_from'] != up_from
            # One that restarted has forgotten what it had done. What it had not answered it may have been told after that.
            if note.state == OVERRULED or (restarted and note.state not in (ASKED, RETURNING)):
                del notes.told[osd]
            else:
                note.state = RETURNING
                actions.append(Tell(osd, Level.OK))
        elif note.state != OVERRULED:
            if note.more['up_from'] != up_from:
                # It was restarted, and has forgotten what it was told.
                note.state, note.more = ASKED, {'up_from': up_from, 'rounds': 0}
            elif note.state == RETURNING:
                note.state = ASKED
            elif note.state == ANSWERED and is_full:
                note.state = SEEN
            elif note.state == ANSWERED:
                note.more['rounds'] += 1
                if note.more['rounds'] >= PATIENCE_ROUNDS:
                    note.state, note.more['rounds'] = ASKED, 0
            elif note.state == SEEN and not is_full:
                note.state = OVERRULED
            if note.state == ASKED:
                actions.append(Tell(osd, Level.FULL))
    return actions


def is_near(one: float, other: float) -> bool:
    """Whether two weights are the same: Ceph rounds them."""
    return abs(one - other) < 0.001
