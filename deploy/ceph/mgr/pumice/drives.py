"""Status of drives, asked of their servers over HTTP. Imports nothing of Ceph."""

import glob
import http.client
import json
import os
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

# Largest answer that is read: a drive's status is about 20 KB.
ANSWER_MAX_BYTES = 16 << 20
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
    """What is needed of a drive's status. Sizes in bytes; meanings as in docs/status.md."""

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


def parse_drive(status: Dict[str, Any]) -> Drive:
    """Reads one element of `drives` of a status. Raises KeyError or TypeError if it is none."""
    errors, cleaning = status.get('errors') or {}, status.get('cleaning') or {}
    server = status.get('server') or {}
    scrub = server.get('scrub')
    events = {str(event['event']): int(event['count']) for event in (server.get('events') or {}).get('counts') or []}
    return Drive(
        path=str(status['path']),
        uuid=str(status.get('uuid') or ''),
        instance=str(server.get('instance') or ''),
        state=str(status['state']),
        state_reason=status.get('state_reason'),
        read_only_requested=bool(status.get('read_only_requested')),
        logical_capacity=int(status.get('logical_capacity_bytes') or 0),
        logical_used=int(status.get('logical_used_bytes') or 0),
        physical_limit=int(status.get('physical_limit_bytes') or 0),
        physical_used=int(status.get('physical_used_bytes') or 0),
        physical_repackable=int(status.get('physical_repackable_bytes') or 0),
        compression_ratio=float(status.get('compression_ratio') or 0),
        out_of_space=bool(status.get('out_of_space') or status.get('backing_full')),
        seconds_to_full=(status.get('time_to_full') or {}).get('seconds'),
        opens=int(status.get('opens_count') or 0),
        corrupt_records=int(errors.get('corrupt_records_count') or 0),
        damaged_segments=int(cleaning.get('segments_damaged_count') or 0),
        is_fresh_damage=any(events.get(kind) for kind in ('corrupt-record', 'damaged-segment')),
        missing=int((status.get('backing') or {}).get('missing_bytes') or 0),
        scrub=Scrub(str(scrub['state']), int(scrub['started_unix_seconds']), int(scrub['faults_count']))
        if scrub else None,
    )


def parse_map(text: str) -> Tuple[Dict[int, Place], List[str]]:
    """Reads the option `drives`: words `OSD=ADDRESS` or `OSD=ADDRESS#PATH`. Returns the places, and what is wrong with the other
    words."""
    places: Dict[int, Place] = {}
    problems = []
    for word in text.split():
        osd, equals, where = word.partition('=')
        address, _, path = where.partition('#')
        if not (equals and osd.isascii() and osd.isdigit() and address):
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
    host, colon, port = address.rpartition(':')
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("invalid address '%s': expected HOST:PORT or unix:SOCKET" % address)
    return host.strip('[]'), int(port)


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


def ask(address: str, timeout: float, began: Callable[[http.client.HTTPConnection], None]) -> Union[List[Drive], Unreachable]:
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
        return [parse_drive(drive) for drive in json.loads(body)['drives']]
    except (OSError, http.client.HTTPException) as error:
        return Unreachable('%s: %s' % (address, error or type(error).__name__))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return Unreachable('%s: not the status of a Pumice server: %s' % (address, str(error)[:200] or type(error).__name__))
    finally:
        if connection is not None:
            connection.close()


def choose(place: Place, answer: Union[List[Drive], Unreachable]) -> Answer:
    """Picks the drive of a place from the answer of its server."""
    if isinstance(answer, Unreachable):
        return answer
    if place.path is None:
        if len(answer) == 1:
            return answer[0]
        return Unreachable('%s: %d drives there; name the path of one' % (place.address, len(answer)))
    for drive in answer:
        if drive.path == place.path:
            return drive
    return Unreachable('%s: no drive %s there' % (place.address, place.path))
