"""Status of drives, asked of their servers over HTTP. Imports nothing of Ceph."""

import glob
import http.client
import json
import math
import os
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

# Largest answer that is read: a drive's status is about 20 KB.
ANSWER_MAX_BYTES = 16 << 20
# Sizes and counts that a server gives are of 64 bits.
NUMBER_MAX = (1 << 64) - 1
# Digits of an OSD's number: it is a positive one of 32 bits.
OSD_DIGITS_MAX = 10
# Where `pumice attach` records the device of each drive.
ATTACHMENTS = '/run/pumice-attach'


class Place(NamedTuple):
    """Where the drive of an OSD is: the HTTP address of its server, and its path there; None: the only drive of that server."""

    address: str
    path: Optional[str]


class Scrub(NamedTuple):
    """The running or last scrub of a drive."""

    state: str
    started: int
    faults: int


class Drive(NamedTuple):
    """What is needed of a drive's status. Sizes in bytes; meanings as in docs/reference/status-json.md."""

    path: str
    uuid: str
    # The run of its server; another one after each start.
    instance: str
    state: str
    state_reason: Optional[str]
    read_only_requested: bool
    logical_capacity: int
    logical_used: int
    physical_limit: int
    physical_used: int
    # Part of used: what dead blocks of frames take until the drive packs these frames anew.
    physical_repackable: int
    compression_ratio: float
    # What to expect of new data: without zeros, and no more than what was written lately had. None: too little data to tell.
    expected_ratio: Optional[float]
    out_of_space: bool
    seconds_to_full: Optional[float]
    # Openings for writing, over its life or since it was wiped.
    opens: int
    # Reads that found corrupt data, over its life or since it was wiped; after a crash without the last of them.
    corrupt_records: int
    damaged_segments: int
    # Whether anything corrupt was found since this run of the server opened the drive.
    is_fresh_damage: bool
    missing: int
    is_backing_deleted: bool
    scrub: Optional[Scrub]

    @property
    def used_ratio(self) -> float:
        """Used / limit; at 1 the next write has to wait until frames are packed anew, or is refused."""
        return self.physical_used / self.physical_limit if self.physical_limit else 0.0

    @property
    def occupied_ratio(self) -> float:
        """What stays in use when all frames are packed anew / limit."""
        return max(self.physical_used - self.physical_repackable, 0) / self.physical_limit if self.physical_limit else 0.0

    @property
    def trouble(self) -> Optional[str]:
        """Why the drive does not accept all requests that it should, space aside; None: it does."""
        if self.state == 'online' or (self.state == 'read-only' and self.read_only_requested):
            return None
        return self.state + (': ' + self.state_reason if self.state_reason else '')


class Unreachable(NamedTuple):
    """No status of a drive, and why."""

    reason: str


Answer = Union[Drive, Unreachable]


class Misread(NamedTuple):
    """A drive in a status that is not understood; its path, if that is, and why."""

    path: Optional[str]
    reason: str


# What a server says of its drives.
Listed = Union[Drive, Misread]


def _number(value: Any) -> int:
    """A size or a count; 0 if there is none. Raises ValueError or TypeError."""
    number = int(value or 0)
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError('invalid number %.20s' % value)
    return number


def _real(value: Any) -> Optional[float]:
    """A number with a fraction, or None. Raises ValueError or TypeError."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError('invalid number %s' % number)
    return number


def _text(value: Any) -> str:
    """A text that can be sent: half a pair of surrogates in it would fail a health check, and with it those of all OSDs."""
    return str(value).encode('utf-8', 'replace').decode('utf-8')


def parse_drive(status: Dict[str, Any]) -> Drive:
    """Reads one element of `drives` of a status. Raises one of MISREAD if it is none."""
    errors, cleaning = status.get('errors') or {}, status.get('cleaning') or {}
    server, backing = status.get('server') or {}, status.get('backing') or {}
    scrub = server.get('scrub')
    events = {str(event['event']): _number(event['count']) for event in (server.get('events') or {}).get('counts') or []}
    return Drive(
        path=_text(status['path']),
        uuid=_text(status.get('uuid') or ''),
        instance=_text(server.get('instance') or ''),
        state=_text(status['state']),
        state_reason=None if status.get('state_reason') is None else _text(status['state_reason']),
        read_only_requested=bool(status.get('read_only_requested')),
        logical_capacity=_number(status.get('logical_capacity_bytes')),
        logical_used=_number(status.get('logical_used_bytes')),
        physical_limit=_number(status.get('physical_limit_bytes')),
        physical_used=_number(status.get('physical_used_bytes')),
        physical_repackable=_number(status.get('physical_repackable_bytes')),
        compression_ratio=_real(status.get('compression_ratio')) or 0.0,
        expected_ratio=_real(status.get('expected_compression_ratio')),
        out_of_space=bool(status.get('out_of_space') or status.get('backing_full')),
        seconds_to_full=_real((status.get('time_to_full') or {}).get('seconds')),
        opens=_number(status.get('opens_count')),
        corrupt_records=_number(errors.get('corrupt_records_count')),
        damaged_segments=_number(cleaning.get('segments_damaged_count')),
        is_fresh_damage=any(events.get(kind) for kind in ('corrupt-record', 'damaged-segment')),
        missing=_number(backing.get('missing_bytes')),
        is_backing_deleted=backing.get('place') == 'deleted',
        scrub=Scrub(_text(scrub['state']), _number(scrub['started_unix_seconds']), _number(scrub['faults_count']))
        if scrub else None,
    )


# What reading an answer may raise, whatever is in it.
MISREAD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _why(error: Exception) -> str:
    return ('%s: %s' % (type(error).__name__, _text(error)))[:200]


def parse_listed(status: Any) -> Listed:
    """The same; one that is not understood hides no other."""
    try:
        return parse_drive(status)
    except MISREAD as error:
        path = status.get('path') if isinstance(status, dict) else None
        return Misread(_text(path) if isinstance(path, str) else None, _why(error))


def parse_map(text: str) -> Tuple[Dict[int, Place], List[str]]:
    """Reads the option `drives`: words `OSD=ADDRESS` or `OSD=ADDRESS#PATH`. Returns the places, and what is wrong with the other
    words."""
    places: Dict[int, Place] = {}
    problems = []
    for word in text.split():
        osd, equals, where = word.partition('=')
        address, _, path = where.partition('#')
        if not (equals and osd.isascii() and osd.isdigit() and len(osd) <= OSD_DIGITS_MAX and address):
            problems.append("invalid drive '%s': expected OSD=HOST:PORT or OSD=HOST:PORT#PATH" % word)
            continue
        try:
            split_address(address)
        except ValueError as error:
            problems.append("invalid drive '%s': %s" % (word, error))
            continue
        if int(osd) in places:
            problems.append("two drives for OSD %s: '%s' is not used" % (osd, word))
            continue
        places[int(osd)] = Place(address, path or None)
    return places, problems


def split_address(address: str) -> Tuple[str, Optional[int]]:
    """Splits `HOST:PORT`, `[IPv6]:PORT` or `unix:SOCKET`; the port is None for a socket. Raises ValueError."""
    if address.startswith('unix:'):
        return address[len('unix:'):], None
    host, _, port = address.rpartition(':')
    host = host.strip('[]')
    if not (host and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError("invalid address '%s': expected HOST:PORT or unix:SOCKET" % address)
    return host, int(port)


def attached_paths(folder: str = ATTACHMENTS) -> Dict[str, str]:
    """Paths of the drives attached on this machine, by device. Those that may not be read are left out."""
    paths = {}
    for file in glob.glob(os.path.join(folder, '*', 'attachment.json')):
        try:
            with open(file) as opened:
                attachment = json.load(opened)
            paths[str(attachment['node'])] = str(attachment['path'])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return paths


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__('localhost', timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(address: str, timeout: float, began: Callable[[http.client.HTTPConnection], None]) -> Union[List[Listed], Unreachable]:
    """Asks a server for the status of its drives. `timeout` is that of each step; who has to bound the whole gets the connection
    by `began`, and may shut it down."""
    connection = None
    try:
        host, port = split_address(address)
        connection = (_UnixConnection(host, timeout) if port is None
                      else http.client.HTTPConnection(host, port, timeout=timeout))
        began(connection)
        connection.request('GET', '/status')
        response = connection.getresponse()
        body = response.read(ANSWER_MAX_BYTES)
        if response.status != 200:
            return Unreachable('%s: HTTP status %d' % (address, response.status))
        return [parse_listed(drive) for drive in json.loads(body)['drives']]
    except (OSError, http.client.HTTPException) as error:
        return Unreachable('%s: %s' % (address, error or type(error).__name__))
    except MISREAD as error:
        return Unreachable('%s: not the status of a Pumice server: %s' % (address, _why(error)))
    finally:
        if connection is not None:
            connection.close()


def choose(place: Place, answer: Union[List[Listed], Unreachable]) -> Answer:
    """Picks the drive of a place from the answer of its server."""
    if isinstance(answer, Unreachable):
        return answer
    if place.path is None:
        found = answer
        if len(answer) != 1:
            return Unreachable('%s: %d drives there; name the path of one' % (place.address, len(answer)))
    else:
        # One whose path is not understood either may be any.
        found = [drive for drive in answer if drive.path == place.path] or [drive for drive in answer if drive.path is None]
        if not found:
            return Unreachable('%s: no drive %s there' % (place.address, place.path))
    if isinstance(found[0], Misread):
        return Unreachable('%s: the status of drive %s is not understood: %s'
                           % (place.address, found[0].path or place.path or '', found[0].reason))
    return found[0]
