"""Tests of `health` and `table`: levels, what is down, the checks of Ceph."""

import unittest
from typing import Any

from pumice.damage import Damage
from pumice.drives import Drive, Unreachable, parse_drive
from pumice.health import Level, Limits, Watch, bytes_text, checks, next_level
from pumice.table import duration, rows, text

from .test_drives import status

LIMITS = Limits()
HORIZON = 10


def drive(used: int = 200, repackable: int = 0, **changes: Any) -> Drive:
    return parse_drive(status(physical_used_bytes=used, physical_repackable_bytes=repackable, **changes))


class Levels(unittest.TestCase):
    def test_a_level_ends_below_where_it_begins(self) -> None:
        level, seen = Level.OK, []
        for used in (0.84, 0.85, 0.84, 0.829, 0.91, 0.95, 0.94, 0.929, 0.87, 0.82):
            level = next_level(level, used, LIMITS)
            seen.append(level.name)
        self.assertEqual(seen, ['OK', 'NEARFULL', 'NEARFULL', 'OK', 'BACKFILLFULL', 'FULL', 'FULL', 'BACKFILLFULL', 'NEARFULL',
                                'OK'])

    def test_limits_in_the_wrong_order_are_refused(self) -> None:
        self.assertIsNone(LIMITS.problem())
        for limits in (Limits(nearfull=0.96), Limits(full=1.1), Limits(hysteresis=0.9), Limits(nearfull=0), Limits(down_after=0)):
            self.assertIsNotNone(limits.problem(), limits)


class Watching(unittest.TestCase):
    def watch(self, *answers: Any) -> Watch:
        watch = Watch()
        for at, answer in enumerate(answers):
            watch.see(answer, at, HORIZON, LIMITS)
        return watch

    def test_what_would_be_full_before_the_next_look_is_full(self) -> None:
        self.assertEqual(self.watch(drive(840), drive(855)).level, Level.FULL)
        self.assertEqual(self.watch(drive(840), drive(850)).level, Level.NEARFULL)
        # Far from full nothing is hasty: a burst is no trend.
        self.assertEqual(self.watch(drive(100), drive(800)).level, Level.OK)

    def test_two_looks_close_together_are_no_trend(self) -> None:
        watch = Watch()
        watch.see(drive(860), 100, HORIZON, LIMITS)
        watch.see(drive(861), 100.005, HORIZON, LIMITS)
        self.assertEqual(watch.level, Level.NEARFULL)

    def test_what_can_be_packed_anew_does_not_count(self) -> None:
        # A drive packs until used is about 94.5 % of the limit, and no more than that.
        self.assertEqual(self.watch(drive(946, 300)).level, Level.OK)
        self.assertEqual(self.watch(drive(946, 60)).level, Level.NEARFULL)
        self.assertEqual(self.watch(drive(946)).level, Level.BACKFILLFULL)

    def test_full_ends_when_what_was_deleted_is_left_in_frames(self) -> None:
        self.assertEqual(self.watch(drive(960), drive(946, 10)).level, Level.FULL)
        self.assertEqual(self.watch(drive(960), drive(946, 30)).level, Level.BACKFILLFULL)

    def test_a_drive_whose_packing_does_not_keep_up_is_full_until_it_does(self) -> None:
        self.assertEqual(self.watch(drive(970, 400), drive(979, 400)).level, Level.OK)
        self.assertEqual(self.watch(drive(970, 400), drive(980, 400)).level, Level.FULL)
        self.assertEqual(self.watch(drive(980, 400), drive(960, 400)).level, Level.FULL)
        self.assertEqual(self.watch(drive(980, 400), drive(959, 400)).level, Level.OK)
        self.assertEqual(self.watch(drive(1000, 400, out_of_space=True), drive(945, 345)).level, Level.OK)

    def test_growth_while_much_can_be_packed_is_no_haste(self) -> None:
        self.assertEqual(self.watch(drive(900, 400), drive(950, 400)).level, Level.OK)

    def test_full_in_haste_lasts_while_it_is_nearly_full(self) -> None:
        self.assertEqual(self.watch(drive(840), drive(860), drive(860), drive(840)).level, Level.FULL)
        self.assertEqual(self.watch(drive(840), drive(860), drive(829)).level, Level.OK)

    def test_what_was_held_full_before_a_restart_of_the_manager_is_full_until_there_is_room(self) -> None:
        watch = Watch(is_held_full=True)
        self.assertEqual(checks({1: watch}, Damage()), checks({1: Watch()}, Damage()), 'nothing is known of it')
        for used, level in ((907, Level.FULL), (840, Level.FULL), (820, Level.OK), (860, Level.NEARFULL)):
            watch.see(drive(used), used, HORIZON, LIMITS)
            self.assertEqual(watch.level, level, used)

    def test_out_of_space_is_full_at_any_share(self) -> None:
        self.assertEqual(self.watch(drive(500, out_of_space=True)).level, Level.FULL)
        self.assertEqual(self.watch(drive(500, out_of_space=True), drive(500)).level, Level.OK)

    def test_growth_heals(self) -> None:
        self.assertEqual(self.watch(drive(990), drive(990, physical_limit_bytes=2000)).level, Level.OK)

    def test_another_drive_in_its_place_begins_anew(self) -> None:
        self.assertEqual(self.watch(drive(940), drive(960), drive(0, uuid='v')).level, Level.OK)

    def test_one_answer_missing_is_not_down(self) -> None:
        gone = Unreachable('refused')
        self.assertIsNone(self.watch(drive(), gone).down)
        self.assertEqual(self.watch(drive(), gone, gone).down, 'refused')
        self.assertIsNone(self.watch(drive(), gone, gone, drive()).down)

    def test_a_drive_that_is_down_keeps_its_level(self) -> None:
        gone = Unreachable('refused')
        watch = self.watch(drive(990), gone, gone, gone)
        self.assertEqual(watch.level, Level.FULL)
        self.assertEqual(set(checks({0: watch}, Damage())), {'PUMICE_FULL', 'PUMICE_DOWN'})

    def test_poisoned_is_down_at_once(self) -> None:
        self.assertEqual(self.watch(drive(state='poisoned', state_reason='a sync failed')).down, 'poisoned: a sync failed')


class Checks(unittest.TestCase):
    def test_one_line_for_each_osd(self) -> None:
        watches = {}
        for osd, used in ((0, 100), (1, 870), (2, 910), (3, 960)):
            watches[osd] = Watch()
            watches[osd].see(drive(used), 0, HORIZON, LIMITS)
        raised = checks(watches, Damage())
        self.assertEqual(set(raised), {'PUMICE_NEARFULL', 'PUMICE_FULL'})
        self.assertEqual(raised['PUMICE_NEARFULL']['count'], 2)
        self.assertEqual(raised['PUMICE_FULL']['severity'], 'error')
        self.assertEqual(raised['PUMICE_FULL']['detail'],
                         ['osd.3: /srv/d: 96.0 % of 1000 B of physical space used, 96.0 % when frames are packed anew, ratio without zeros 2.50'])
        self.assertEqual(raised['PUMICE_FULL']['summary'], '1 Pumice drive out of physical space, or about to be')

    def test_a_ratio_of_too_little_data_is_unknown(self) -> None:
        watch = Watch()
        watch.see(drive(960, expected_compression_ratio=None), 0, HORIZON, LIMITS)
        detail = checks({3: watch}, Damage())['PUMICE_FULL']['detail']
        self.assertIn('ratio without zeros unknown', detail[0])
        self.assertIn(' - ', text({3: watch}, Damage()).splitlines()[1])

    def test_nothing_wrong_nothing_raised(self) -> None:
        watch = Watch()
        watch.see(drive(), 0, HORIZON, LIMITS)
        self.assertEqual(checks({0: watch}, Damage()), {})


    def test_protection_that_failed_or_was_taken_back(self) -> None:
        raised = checks({}, Damage(), ['osd.1 gets weight 0.8: failed: no'], ['osd.2: its weight was changed'])
        self.assertEqual(raised, {'PUMICE_PROTECTION': {
            'severity': 'error', 'count': 2, 'summary': 'protection of full Pumice drives failed',
            'detail': ['osd.1 gets weight 0.8: failed: no', 'osd.2: its weight was changed']}})
        self.assertEqual(checks({}, Damage(), [], ['x'])['PUMICE_PROTECTION']['severity'], 'warning')

    def test_complaints_hide_no_check(self) -> None:
        watch = Watch()
        watch.see(drive(960), 0, HORIZON, LIMITS)
        self.assertEqual(set(checks({0: watch}, Damage(), complaints=['x'])), {'PUMICE_FULL', 'PUMICE_MODULE'})


class Tables(unittest.TestCase):
    def test_known_and_unknown(self) -> None:
        known, unknown = Watch(), Watch()
        known.see(drive(), 0, HORIZON, LIMITS)
        for _ in range(2):
            unknown.see(Unreachable('refused'), 0, HORIZON, LIMITS)
        lines = text({0: known, 11: unknown}, Damage()).splitlines()
        self.assertEqual(len({line.index(word) for line, word in zip(lines, ('DRIVE', '/srv/d'))}), 1)
        self.assertEqual(lines[1].split(), ['osd.0', '/srv/d', 'online', '500', 'B', '2.93', 'KiB', '200', 'B', '1000', 'B', '20.0',
                                            '%', '20.0', '%', '2.50', '60', 's', 'ok'])
        self.assertEqual(lines[3], 'osd.11: refused')
        self.assertEqual([row['state'] for row in rows({0: known, 11: unknown})], ['online', 'down'])

    def test_units(self) -> None:
        self.assertEqual([duration(x) for x in (None, 0, 119, 120, 7200, 200000)], ['-', '0 s', '119 s', '2 min', '2 h', '2 d'])
        self.assertEqual([bytes_text(x) for x in (0, 1023, 1536, 3 << 40)], ['0 B', '1023 B', '1.50 KiB', '3.00 TiB'])
