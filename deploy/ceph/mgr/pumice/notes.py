"""What the module has done to a cluster, or is about to do. Imports nothing of Ceph."""

from typing import Any, Dict, List, Optional

# States of a note. It is kept before the command is sent, and so outlives a manager that ends at any time.
ASKED = 'asked'             # to be done; whether it was is not known
ANSWERED = 'answered'       # the command succeeded; the cluster does not show it yet
SEEN = 'seen'               # done
RETURNING = 'returning'     # to be taken back; whether it was is not known
OVERRULED = 'overruled'     # an administrator took it back: not done again until its cause has ended once


class Note:
    """Of one thing that is done, and how to take it back."""

    def __init__(self, state: str = ASKED, **more: Any) -> None:
        self.state = state
        self.more = more

    def stored(self) -> Dict[str, Any]:
        """What to keep."""
        return {'state': self.state, **self.more}


class Notes:
    """All of them. What has no note belongs to somebody else, and is never taken back."""

    def __init__(self, stored: Optional[Dict[str, Any]] = None) -> None:
        stored = stored or {}
        # `causes`: OSDs with full drives that hold the flag.
        self.pause: Optional[Note] = Note(**stored['pause']) if stored.get('pause') else None
        # By OSD; `before` and `given` are weights.
        self.weights: Dict[int, Note] = {int(osd): Note(**note) for osd, note in stored.get('weights', {}).items()}
        # By OSD; `up_from` is the epoch at which it started: an OSD that starts again has forgotten it. `rounds`: waited for the
        # cluster to show it.
        self.told: Dict[int, Note] = {int(osd): Note(**note) for osd, note in stored.get('told', {}).items()}

    def stored(self) -> Dict[str, Any]:
        """What to keep."""
        return {'pause': self.pause.stored() if self.pause else None,
                'weights': {osd: note.stored() for osd, note in sorted(self.weights.items())},
                'told': {osd: note.stored() for osd, note in sorted(self.told.items())}}

    def causes(self) -> List[int]:
        """OSDs for whose full drives something was done."""
        return sorted({*self.weights, *self.told, *(self.pause.more['causes'] if self.pause else ())})

    def overruled(self) -> List[str]:
        """What an administrator took back, in words."""
        found = []
        if self.pause and self.pause.state == OVERRULED:
            found.append('the flag pause was removed by an administrator')
        found += ['osd.%d: its weight was changed by an administrator' % osd
                  for osd, note in sorted(self.weights.items()) if note.state == OVERRULED]
        found += ['osd.%d: an administrator told it that it is not full' % osd
                  for osd, note in sorted(self.told.items()) if note.state == OVERRULED]
        return [what + '; that stays so until its cause has ended once' for what in found]
