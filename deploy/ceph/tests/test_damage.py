"""Tests of `damage`: what is found, settled, acknowledged, over restarts of servers, managers and counts."""

import json
import unittest
from typing import Any, Optional

from pumice.damage import Damage
from pumice.drives import Drive, Scrub, parse_drive

from .test_drives import status


def drive(records: int = 0, segments: int = 0, opens: int = 1, instance: str = 'i', fresh: bool = False,
          scrub: Optional[Scrub] = None, **changes: Any) -> Drive:
    return parse_drive(status(**changes))._replace(corrupt_records=records, damaged_segments=segments, opens=opens,
                                                   instance=instance, is_fresh_damage=fresh, scrub=scrub)


class Corruption(unittest.TestCase):
    def setUp(self) -> None:
        self.damage = Damage()

    def sees(self, seen: Drive) -> bool:
        """Takes in a status; the manager restarts after each. Returns whether the drive counts as corrupt."""
        self.damage.see(seen)
        self.damage = Damage(json.loads(json.dumps(self.damage.stored())))
        return bool(self.damage.of(seen))

    def test_nothing_is_kept_of_a_drive_that_is_whole(self) -> None:
        self.assertFalse(self.damage.see(drive()))
        self.assertEqual(self.damage.stored(), {})

    def test_it_is_stored_once(self) -> None:
        self.assertTrue(self.damage.see(drive(2)))
        self.assertFalse(self.damage.see(drive(2)))
        self.assertEqual(self.damage.of(drive(2)), ['2 reads found corrupt data, 0 segments are damaged'])

    def test_settled_by_a_later_scrub_without_faults(self) -> None:
        old = Scrub('finished', 10, 0)
        self.assertTrue(self.sees(drive(2, scrub=old)))
        for scrub in (old, Scrub('running', 20, 0), Scrub('stopped', 20, 0), Scrub('finished', 20, 1)):
            self.assertTrue(self.sees(drive(2, scrub=scrub)), scrub)
        self.assertFalse(self.sees(drive(2, scrub=Scrub('finished', 20, 0))))
        # The next one.
        self.assertTrue(self.sees(drive(3, scrub=Scrub('finished', 20, 0))))

    def test_acknowledged(self) -> None:
        self.assertTrue(self.sees(drive(2, 1)))
        self.damage.acknowledge(drive(2, 1))
        self.assertFalse(self.sees(drive(2, 1)))
        self.assertTrue(self.sees(drive(2, 2)))

    def test_one_number_that_falls_does_not_hide_the_other(self) -> None:
        self.sees(drive(1, 3))
        self.damage.acknowledge(drive(1, 3))
        self.assertTrue(self.sees(drive(2, 1)))
        self.assertEqual(self.damage.of(drive(2, 1)), ['1 reads found corrupt data, 0 segments are damaged'])

    def test_a_count_that_fell_in_a_crash(self) -> None:
        self.sees(drive(10))
        self.damage.acknowledge(drive(10))
        self.assertFalse(self.sees(drive(8, opens=2, instance='j')), 'acknowledged')
        self.assertTrue(self.sees(drive(9, opens=2, instance='j')), 'new, though it is less than before')

    def test_a_count_that_fell_and_rose_between_two_looks(self) -> None:
        self.sees(drive(10))
        self.damage.acknowledge(drive(10))
        self.assertTrue(self.sees(drive(9, opens=2, instance='j', fresh=True)))
        self.damage.acknowledge(drive(9, opens=2, instance='j', fresh=True))
        self.assertFalse(self.sees(drive(9, opens=2, instance='j', fresh=True)), 'not again in the same run of the server')

    def test_what_is_open_outlives_a_crash(self) -> None:
        self.assertTrue(self.sees(drive(10)))
        self.assertTrue(self.sees(drive(0, opens=2, instance='j')))

    def test_a_wiped_drive_begins_anew(self) -> None:
        self.sees(drive(10, opens=7))
        self.assertFalse(self.sees(drive(0, opens=1, instance='j')))
        self.sees(drive(10, opens=7))
        self.damage.acknowledge(drive(10, opens=7))
        self.assertTrue(self.sees(drive(2, opens=1, instance='k')), 'all that it counts is new')

    def test_another_drive_in_its_place_begins_anew(self) -> None:
        self.sees(drive(10))
        self.assertFalse(self.sees(drive(0, uuid='v')))
        self.assertTrue(self.sees(drive(1, uuid='v')))

    def test_segments_that_are_whole_again(self) -> None:
        self.assertTrue(self.sees(drive(0, 2)))
        self.assertFalse(self.sees(drive(0, 0)))

    def test_a_truncated_backing_and_a_damaged_drive(self) -> None:
        self.assertEqual(len(Damage().of(drive(state='damaged', backing={'missing_bytes': 1}))), 2)

    def test_a_deleted_backing(self) -> None:
        self.assertEqual(Damage().of(drive(backing={'place': 'in-place'})), [])
        self.assertEqual(Damage().of(drive(backing={'place': 'deleted'})),
                         ['its backing is deleted: all is lost when its server ends'])
