"""Text and JSON of `ceph pumice status`. Imports nothing of Ceph."""

from typing import Any, Dict, List, Optional

from .damage import Damage
from .health import Watch, bytes_text

HEADER = ('OSD', 'DRIVE', 'STATE', 'LOGICAL', 'OF', 'PHYSICAL', 'OF', 'USED', 'OCCUPIED', 'RATIO', 'TIME TO FULL', 'LEVEL')


def duration(seconds: Optional[float]) -> str:
    """A time, in its largest unit; '-' if there is none."""
    if seconds is None:
        return '-'
    for unit, length in (('d', 86400), ('h', 3600), ('min', 60)):
        if seconds >= 2 * length:
            return '%d %s' % (seconds // length, unit)
    return '%d s' % seconds


def rows(watches: Dict[int, Watch]) -> List[Dict[str, Any]]:
    """One object for each OSD, for programs. Sizes in bytes. What is not known is None."""
    result = []
    for osd, watch in sorted(watches.items()):
        drive = watch.drive
        result.append({
            'osd': osd,
            'path': drive.path if drive else None,
            'uuid': drive.uuid if drive else None,
            'state': 'down' if watch.down is not None else drive.state if drive else 'unknown',
            'state_reason': watch.down,
            'level': watch.level.name.lower(),
            'logical_used_bytes': drive.logical_used if drive else None,
            'logical_capacity_bytes': drive.logical_capacity if drive else None,
            'physical_used_bytes': drive.physical_used if drive else None,
            'physical_limit_bytes': drive.physical_limit if drive else None,
            'physical_repackable_bytes': drive.physical_repackable if drive else None,
            'physical_used_ratio': drive.used_ratio if drive else None,
            'physical_occupied_ratio': drive.occupied_ratio if drive else None,
            'compression_ratio': drive.compression_ratio if drive else None,
            'expected_compression_ratio': drive.expected_ratio if drive else None,
            'time_to_full_seconds': drive.seconds_to_full if drive else None,
        })
    return result


def text(watches: Dict[int, Watch], damage: Damage) -> str:
    """An aligned table, and a line for each trouble."""
    lines = [HEADER]
    troubles = []
    for row in rows(watches):
        known = row['path'] is not None
        lines.append((
            'osd.%d' % row['osd'], row['path'] or '-', row['state'],
            bytes_text(row['logical_used_bytes']) if known else '-',
            bytes_text(row['logical_capacity_bytes']) if known else '-',
            bytes_text(row['physical_used_bytes']) if known else '-',
            bytes_text(row['physical_limit_bytes']) if known else '-',
            '%.1f %%' % (100 * row['physical_used_ratio']) if known else '-',
            '%.1f %%' % (100 * row['physical_occupied_ratio']) if known else '-',
            '%.2f' % row['expected_compression_ratio'] if row['expected_compression_ratio'] else '-',
            duration(row['time_to_full_seconds']), row['level']))
        if row['state_reason']:
            troubles.append('osd.%d: %s' % (row['osd'], row['state_reason']))
        drive = watches[row['osd']].drive
        if drive:
            troubles += ['osd.%d: %s' % (row['osd'], what) for what in damage.of(drive)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    table = ['  '.join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    return '\n'.join(table + troubles) + '\n'
