"""Where the drives of OSDs are, by the patterns `address` and `path`. Imports nothing of Ceph."""

from typing import NamedTuple, Optional, Union

from .drives import Place, Unreachable, split_address

# What a pattern raises that cannot be filled in.
MALFORMED = (ValueError, LookupError, AttributeError, TypeError)
# Digits of a port that are looked at: it has five at most.
PORT_DIGITS = 6


def host_of(address: str) -> Optional[str]:
    """The host of an OSD's address in the map, `HOST:PORT/NONCE`; that of IPv6 is in brackets. None: the OSD has no address. Before it
    starts for the first time the map shows `(unrecognized address family 0)/0` or `:/0`."""
    host, _, port = address.partition('/')[0].rpartition(':')
    if not (port.isascii() and port.isdigit()) or int(port[:PORT_DIGITS]) == 0 or host in ('', '0.0.0.0', '[]', '[::]'):
        return None
    return host


class Patterns(NamedTuple):
    """The options `address` and `path`. Without a path: the drive whose device the OSD uses, or the only one of its server."""

    address: str
    path: str

    def problem(self) -> Optional[str]:
        """What is wrong with them for every OSD, if anything is."""
        try:
            split_address(self.address.format(host='host'))
            self.path.format(id=0, host='host')
        except MALFORMED as error:
            return "options 'address' and 'path': %s: %s" % (type(error).__name__, error)
        return None

    def place(self, osd: int, host: str, host_name: Optional[str], attached: Optional[str]) -> Union[Place, Unreachable]:
        """The drive of an OSD. `host` is that of its public address, `host_name` the name of its machine, if that is known, and
        `attached` the path of the drive whose device it uses, if that is known."""
        try:
            names = {'host': host_name} if host_name else {}
            path = self.path.format(id=osd, **names) if self.path else attached
            address = self.address.format(host=host)
            split_address(address)
        except KeyError as error:
            return Unreachable("not asked: %s of the option 'path' is not known of this OSD" % error)
        except MALFORMED as error:
            return Unreachable("not asked: options 'address' and 'path': %s: %s" % (type(error).__name__, error))
        return Place(address, path)
