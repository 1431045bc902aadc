"""Corruption that drives found, and what of it has been dealt with. Imports nothing of Ceph."""

from typing import Any, Dict, List, Optional

from .drives import Drive

# A drive of which nothing is known yet.
UNKNOWN = {'instance': '', 'opens': 0, 'records': 0, 'segments': 0, 'open_records': 0, 'open_segments': 0, 'scrub': 0}


class Damage:
    """Kept over restarts of the manager, by the id of the drive. Two numbers, each with the last value seen and how much of it is
    open, that is not dealt with: reads that found corrupt data, which are counted over the drive's life and may fall after a crash,
    and segments that are set aside, which are counted as they are."""

    def __init__(self, stored: Optional[Dict[str, Dict[str, Any]]] = None) -> None:
        self._known: Dict[str, Dict[str, Any]] = {uuid: {**UNKNOWN, **known} for uuid, known in (stored or {}).items()}

    def stored(self) -> Dict[str, Dict[str, Any]]:
        """What to keep."""
        return self._known

    def see(self, drive: Drive) -> bool:
        """Takes in a status. Returns whether `stored` has changed."""
        known = self._known.get(drive.uuid, UNKNOWN)
        if drive.opens < known['opens']:
            # It was wiped: its counts began again, with nothing of what was known.
            known = {**UNKNOWN, 'scrub': known['scrub']}
        scrub = drive.scrub
        fresh = {**known, 'instance': drive.instance, 'opens': drive.opens, 'records': drive.corrupt_records,
                 'segments': drive.damaged_segments}
        # Segments that are whole again, as after a crash, are not damaged any more.
        fresh['open_segments'] = min(known['open_segments'], drive.damaged_segments)
        rise_of_records = max(drive.corrupt_records - known['records'], 0)
        rise_of_segments = max(drive.damaged_segments - known['segments'], 0)
        # A count that fell in a crash, and rose again before this look, hides what is new. The server's own events do not.
        is_another_run = drive.instance != known['instance']
        if is_another_run and drive.is_fresh_damage and not rise_of_records and not rise_of_segments:
            rise_of_records = 1
        fresh['open_records'] += rise_of_records
        fresh['open_segments'] += rise_of_segments
        if rise_of_records or rise_of_segments:
            # Only a scrub that begins later says something about these.
            fresh['scrub'] = scrub.started if scrub else known['scrub']
        elif scrub and scrub.state == 'finished' and not scrub.faults and scrub.started > known['scrub']:
            fresh['open_records'] = fresh['open_segments'] = 0
        is_whole = not any(fresh[key] for key in ('records', 'segments', 'open_records', 'open_segments'))
        if fresh == self._known.get(drive.uuid) or (is_whole and drive.uuid not in self._known):
            return False
        self._known[drive.uuid] = fresh
        return True

    def acknowledge(self, drive: Drive) -> None:
        """An administrator has dealt with all that was found."""
        self.see(drive)
        if drive.uuid in self._known:
            self._known[drive.uuid].update(open_records=0, open_segments=0)

    def of(self, drive: Drive) -> List[str]:
        """What is corrupt on a drive, in words."""
        known = self._known.get(drive.uuid, UNKNOWN)
        found = []
        if known['open_records'] or known['open_segments']:
            found.append('%d reads found corrupt data, %d segments are damaged'
                         % (known['open_records'], known['open_segments']))
        if drive.missing:
            found.append('%d bytes of its backing are missing' % drive.missing)
        if drive.is_backing_deleted:
            found.append('its backing is deleted: all is lost when its server ends')
        if drive.state == 'damaged' or (drive.state == 'read-only' and not drive.read_only_requested):
            found.append(drive.trouble or drive.state)
        return found
