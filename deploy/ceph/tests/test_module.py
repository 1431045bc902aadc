"""Tests of `module` with a stand-in for Ceph: what is raised, kept, sent; managers that end at any time."""

import json
import threading
import time
import unittest
from typing import Any, Dict, List
from unittest import mock

from pumice import module
from pumice.drives import Answer, Place, Unreachable, parse_drive

from .fake_mgr import Cluster
from .test_drives import status


class Killed(BaseException):
    """Ends a manager between two of its steps."""


def drive(used: int, **changes: Any) -> Answer:
    return parse_drive(status(physical_used_bytes=used, **changes))


class Rounds(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = Cluster()
        self.cluster.options['drives'] = '0=a:1 1=b:1 2=c:1'
        self.answers: Dict[int, Answer] = {0: drive(100), 1: drive(100), 2: drive(100)}
        self.asked: List[Dict[int, Place]] = []
        for patch in (mock.patch.object(module.Askers, 'ask_all', self.ask_all), mock.patch.object(module, 'COMMANDS_SECONDS', 3)):
            patch.start()
            self.addCleanup(patch.stop)
        self.start_manager()

    def ask_all(self, places: Dict[int, Place], timeout: float) -> Dict[int, Answer]:
        self.asked.append(places)
        return {osd: self.answers[osd] for osd in places}

    def start_manager(self) -> None:
        self.manager = module.Module(self.cluster)

    def round(self) -> Dict[str, Any]:
        """One round as `serve` does it. Returns what is raised after it."""
        def once(_: float) -> None:
            self.manager._ended = True
        self.manager._ended = False
        with mock.patch.object(self.manager._wake, 'wait', once):
            self.manager.serve()
        return self.manager.raised

    def test_nothing_full_nothing_sent(self) -> None:
        self.assertEqual(self.round(), {})
        self.assertEqual(self.cluster.sent, [])

    def test_full_is_raised_and_protected_and_taken_back(self) -> None:
        for protect, is_done in (('osd-full', lambda: 'full' in self.cluster.osds[1]['state']),
                                 ('cluster-pause', lambda: 'pausewr' in self.cluster.flags),
                                 ('reweight', lambda: self.cluster.osds[1]['weight'] == 0.8)):
            self.cluster.options['protect'] = protect
            self.answers[1] = drive(960)
            self.assertEqual(set(self.round()), {'PUMICE_FULL'}, protect)
            self.assertTrue(is_done(), protect)
            self.answers[1] = drive(100)
            self.assertEqual(self.round(), {}, protect)
            self.assertFalse(is_done(), protect)

    def test_a_manager_killed_at_any_step_leaves_nothing_for_ever(self) -> None:
        for protect, doing, undoing in (('osd-full', 'injectfull', 'injectfull'), ('cluster-pause', 'osd set', 'osd unset'),
                                        ('reweight', 'osd reweight', 'osd reweight')):
            for at in ('before', 'after'):
                for step, full in ((doing, True), (undoing, False)):
                    with self.subTest(protect=protect, at=at, full=full):
                        self.cluster = Cluster()
                        self.cluster.options.update(drives='0=a:1 1=b:1 2=c:1', protect=protect)
                        whole = json.loads(json.dumps(self.cluster.map()))
                        self.answers[1] = drive(960)
                        self.start_manager()
                        if not full:
                            self.round()
                            self.answers[1] = drive(100)

                        def kill(prefix: str) -> None:
                            if prefix == step:
                                raise Killed
                        setattr(self.cluster, at, kill)
                        with self.assertRaises(Killed):
                            self.round()
                        setattr(self.cluster, at, lambda prefix: None)
                        self.start_manager()
                        # It does not know the drive at first.
                        self.answers[1] = Unreachable('not yet')
                        self.round()
                        self.answers[1] = drive(960) if full else drive(100)
                        self.round()
                        self.assertEqual(self.cluster.map() == whole, not full)
                        self.answers[1] = drive(100)
                        self.round()
                        self.assertEqual(self.cluster.map(), whole)
                        self.assertEqual(json.loads(self.cluster.store['notes']), {'pause': None, 'weights': {}, 'told': {}})

    def test_an_unknown_drive_does_not_hold_the_flag_of_another(self) -> None:
        self.cluster.options['protect'] = 'cluster-pause'
        self.answers[1], self.answers[2] = drive(960), Unreachable('gone')
        self.round()
        self.assertIn('pausewr', self.cluster.flags)
        self.start_manager()
        self.answers[1] = drive(100)
        self.round()
        self.assertNotIn('pausewr', self.cluster.flags)

    def test_a_level_that_was_reached_is_not_forgotten_with_the_manager(self) -> None:
        for protect in ('osd-full', 'cluster-pause', 'reweight'):
            self.cluster.options['protect'] = protect
            self.answers[1] = drive(960)
            self.round()
            self.start_manager()
            self.answers[1] = drive(935)
            self.assertEqual(set(self.round()), {'PUMICE_FULL'}, protect)
            self.answers[1] = drive(100)
            self.round()

    def test_a_full_drive_that_is_lost_holds_the_flag_until_it_is_removed(self) -> None:
        self.cluster.options['protect'] = 'cluster-pause'
        self.answers[1] = drive(960)
        self.round()
        self.answers[1] = Unreachable('gone')
        self.start_manager()
        for _ in range(5):
            self.round()
        self.assertIn('pausewr', self.cluster.flags)
        del self.cluster.osds[1]
        self.round()
        self.assertNotIn('pausewr', self.cluster.flags)

    def test_protection_that_fails_is_raised_and_repeated(self) -> None:
        for protect, prefix in (('osd-full', 'injectfull'), ('cluster-pause', 'osd set'), ('reweight', 'osd reweight')):
            self.cluster.options['protect'] = protect
            self.answers[1] = drive(960)
            self.cluster.failing = {prefix: 'access denied'}
            for _ in range(2):
                raised = self.round()
                self.assertEqual(set(raised), {'PUMICE_FULL', 'PUMICE_PROTECTION'}, protect)
                self.assertIn('access denied', raised['PUMICE_PROTECTION']['detail'][0])
                self.assertEqual(raised['PUMICE_PROTECTION']['severity'], 'error')
            self.cluster.failing = {}
            self.assertEqual(set(self.round()), {'PUMICE_FULL'}, protect)
            self.answers[1] = drive(100)
            self.assertEqual(self.round(), {}, protect)

    def test_a_cluster_that_does_not_answer_is_raised_and_not_asked_again_and_again(self) -> None:
        self.answers[1] = self.answers[2] = drive(960)
        self.cluster.silent = ['injectfull']
        for _ in range(3):
            raised = self.round()
        self.assertEqual(len(raised['PUMICE_PROTECTION']['detail']), 2)
        self.assertIn('no answer', raised['PUMICE_PROTECTION']['detail'][0])
        self.assertEqual(self.cluster.sent.count(('injectfull', '1')), 1)
        self.cluster.silent = []
        for complete in self.cluster.pending:
            complete()
        self.assertEqual(set(self.round()), {'PUMICE_FULL'})
        self.cluster.silent = ['osd dump']
        self.assertIn('the state of the cluster is not known', self.round()['PUMICE_PROTECTION']['detail'][0])

    def test_an_osd_that_restarts_with_a_command_in_flight_is_not_full_for_ever(self) -> None:
        self.answers[1] = drive(960)
        self.cluster.silent = ['injectfull']
        self.round()
        self.cluster.osds[1]['up_from'] = 9
        self.answers[1] = drive(100)
        raised = self.round()
        self.assertEqual(set(raised), {'PUMICE_PROTECTION'})
        self.assertIn('osd.1: no answer for', raised['PUMICE_PROTECTION']['detail'][0])
        # Ceph sends it to the OSD again.
        self.cluster.silent = []
        for complete in self.cluster.pending:
            complete()
        self.assertIn('full', self.cluster.osds[1]['state'])
        self.assertEqual(self.round(), {})
        self.assertNotIn('full', self.cluster.osds[1]['state'])
        self.assertEqual(self.manager._notes.causes(), [])

    def test_an_osd_that_was_removed_owes_no_answer(self) -> None:
        self.answers[1] = self.answers[2] = drive(960)
        self.cluster.silent = ['injectfull']
        self.round()
        del self.cluster.osds[1]
        raised = self.round()
        self.assertEqual(len(raised['PUMICE_PROTECTION']['detail']), 1)
        self.assertEqual(list(self.manager._outstanding), [('osd', '2')])

    def test_options_that_change_all_the_time_do_not_make_rounds_follow_at_once(self) -> None:
        clock, began = [100.0], []

        def ask_all(places: Dict[int, Place], timeout: float) -> Dict[int, Answer]:
            began.append(clock[0])
            self.manager.config_notify()
            self.manager._ended = len(began) == 4
            clock[0] += 0.25
            return {}

        def sleep(seconds: float) -> None:
            clock[0] += seconds
            self.manager.config_notify()
        with mock.patch.object(module, 'time', mock.Mock(monotonic=lambda: clock[0], sleep=sleep)), \
                mock.patch.object(self.manager._askers, 'ask_all', ask_all), \
                mock.patch.object(self.manager._wake, 'wait', lambda seconds: None):
            self.manager.serve()
        self.assertEqual(began, [100, 101, 102, 103])

    def test_commands_that_take_long_do_not_add_up(self) -> None:
        self.cluster.options['protect'] = 'reweight'
        self.answers = {osd: drive(960) for osd in range(3)}
        late = [0.0]

        def take_long(prefix: str) -> None:
            late[0] += 100 if prefix == 'osd reweight' else 0
        self.cluster.after = take_long
        now = time.monotonic
        patch = mock.patch.object(module, 'time', mock.Mock(monotonic=lambda: now() + late[0]))
        patch.start()
        self.addCleanup(patch.stop)
        raised = self.round()
        self.assertEqual(self.cluster.sent.count(('osd reweight', '')), 1)
        self.assertIn('not sent', raised['PUMICE_PROTECTION']['detail'][0])
        for _ in range(2):
            raised = self.round()
        self.assertEqual(set(raised), {'PUMICE_FULL'})
        self.assertEqual([self.cluster.osds[osd]['weight'] for osd in range(3)], [0.8] * 3)

    def test_what_an_administrator_took_back_is_shown(self) -> None:
        self.cluster.options['protect'] = 'cluster-pause'
        self.answers[1] = drive(960)
        self.round()
        self.cluster.flags = []
        for _ in range(3):
            raised = self.round()
            self.assertEqual(self.cluster.flags, [])
            self.assertEqual(raised['PUMICE_PROTECTION']['severity'], 'warning')
            self.start_manager()
        self.answers[1] = drive(100)
        self.assertEqual(self.round(), {})

    def test_a_round_that_fails_hides_nothing_and_is_shown_as_long_as_it_fails(self) -> None:
        self.answers[1] = drive(960)
        self.round()
        with mock.patch.object(self.manager, '_places', side_effect=OSError('broken')):
            for _ in range(3):
                raised = self.round()
                self.assertEqual(set(raised), {'PUMICE_FULL', 'PUMICE_MODULE'})
                self.assertEqual(raised['PUMICE_MODULE']['detail'], ['a round failed: OSError: broken'])
        with mock.patch.object(self.manager, '_protect', side_effect=OSError('broken')):
            self.round()
            self.manager.history = []
            self.round()
            self.assertEqual({frozenset(raised) for raised in self.manager.history}, {frozenset(('PUMICE_FULL', 'PUMICE_MODULE'))},
                             'it does not come and go within a round')
        self.assertEqual(set(self.round()), {'PUMICE_FULL'})

    def test_a_bad_word_stops_no_other_drive(self) -> None:
        self.cluster.options['drives'] = '0=a:1 nonsense 2=c:1'
        self.answers[2] = drive(960)
        for _ in range(2):
            raised = self.round()
            self.assertEqual(set(raised), {'PUMICE_FULL', 'PUMICE_MODULE'})
            self.assertIn('nonsense', raised['PUMICE_MODULE']['detail'][0])
        self.assertIn('full', self.cluster.osds[2]['state'])

    def test_a_word_that_became_bad_releases_nothing(self) -> None:
        self.answers[1] = drive(960)
        self.round()
        self.cluster.options['drives'] = '0=a:1 1=:1 2=c:1'
        self.start_manager()
        self.round()
        self.assertIn('full', self.cluster.osds[1]['state'])
        self.cluster.options['drives'] = '0=a:1 2=c:1'
        self.round()
        self.assertNotIn('full', self.cluster.osds[1]['state'], 'it is not watched any more')

    def test_options_that_are_wrong_are_shown_and_defaults_used(self) -> None:
        self.cluster.options.update(protect='reweight', nearfull_ratio=0.99)
        self.answers[1] = drive(960)
        for reweight_to in (0.0, 1.0, 7.5, -1.0, float('nan')):
            self.cluster.options['reweight_to'] = reweight_to
            raised = self.round()
            self.assertEqual(len(raised['PUMICE_MODULE']['detail']), 2, reweight_to)
            self.assertEqual(self.cluster.osds[1]['weight'], 0.8, reweight_to)

    def test_drives_by_address_and_path(self) -> None:
        self.cluster.options.update(drives='2=c:1', address='{host}:9841', path='/srv/{host}/osd.{id}')
        self.round()
        self.assertEqual(self.asked[-1], {0: Place('10.0.0.0:9841', '/srv/host0/osd.0'), 1: Place('10.0.0.1:9841', '/srv/host1/osd.1'),
                                          2: Place('c:1', None)})

    def test_devices_of_other_machines_have_the_same_names(self) -> None:
        self.cluster.options.update(drives='', address='{host}:9841')
        attached = {'/dev/loop0': '/srv/a', '/dev/loop1': '/srv/b'}
        with mock.patch.object(module, 'attached_paths', return_value=attached), \
                mock.patch.object(module.socket, 'gethostname', return_value='host1'):
            self.round()
        self.assertEqual([self.asked[-1][osd].path for osd in range(3)], [None, '/srv/b', None])

    def test_an_address_that_is_no_pattern_stops_no_listed_drive(self) -> None:
        for name, value in (('address', '{nothing}:1'), ('address', '{host'), ('address', 'x'), ('path', '{0}'), ('path', '{id.x}')):
            self.cluster.options.update({'drives': '2=c:1', 'address': 'x:1', 'path': ''})
            self.cluster.options[name] = value
            self.start_manager()
            raised = self.round()
            self.assertEqual(set(raised), {'PUMICE_MODULE'}, value)
            self.assertEqual(len(raised['PUMICE_MODULE']['detail']), 1, value)
            self.assertEqual(self.asked[-1], {2: Place('c:1', None)}, value)
            raised = self.round()
            self.assertEqual(set(raised), {'PUMICE_MODULE', 'PUMICE_DOWN'}, value)
            self.assertEqual([line.split(':')[0] for line in raised['PUMICE_DOWN']['detail']], ['osd.0', 'osd.1'], value)

    def test_an_osd_that_has_never_been_started_hides_no_other(self) -> None:
        self.cluster.options.update(drives='', address='{host}:9841', path='/srv/osd.{id}', protect='none')
        for address in ('(unrecognized address family 0)/0', ':/0', '-', '', '[::]:0/0', '0.0.0.0:0/0', None):
            for osd in (self.cluster.osds[0], self.cluster.osds[1]):
                osd.update(up=1, public_addr='10.0.0.1:6801/1')
            self.answers[2] = drive(900)
            self.start_manager()
            self.assertEqual(set(self.round()), {'PUMICE_NEARFULL'}, address)
            for osd in (self.cluster.osds[0], self.cluster.osds[1]):
                osd.update(up=0, state=['exists', 'new'], public_addr=address)
                self.cluster.about.pop(str(osd['osd']), None)
            self.answers[2] = drive(960)
            for _ in range(3):
                self.assertEqual(set(self.round()), {'PUMICE_FULL'}, address)
                self.assertEqual(set(self.asked[-1]), {2}, address)
            # Nor is what was raised cleared by another manager.
            self.start_manager()
            self.assertEqual(set(self.round()), {'PUMICE_FULL'}, address)
            self.answers[2] = Unreachable('gone')
            self.assertEqual([set(self.round()) for _ in range(2)], [{'PUMICE_FULL'}, {'PUMICE_FULL', 'PUMICE_DOWN'}], address)

    def test_an_osd_that_is_up_at_no_address_is_missed(self) -> None:
        self.cluster.options.update(drives='', address='{host}:9841', path='/srv/osd.{id}')
        self.answers[1] = drive(960)
        self.assertEqual(set(self.round()), {'PUMICE_FULL'})
        self.cluster.osds[1]['public_addr'] = 'riddle'
        self.assertEqual(set(self.round()), {'PUMICE_FULL'})
        raised = self.round()
        self.assertEqual(set(raised), {'PUMICE_FULL', 'PUMICE_DOWN'})
        self.assertEqual(raised['PUMICE_DOWN']['detail'], ["osd.1: not asked: it is up, and 'riddle' in the map is not its address"])
        self.assertIn('full', self.cluster.osds[1]['state'], 'nothing is taken back')
        self.assertEqual(set(self.asked[-1]), {0, 2})

    def test_an_osd_whose_host_name_is_not_known_is_missed(self) -> None:
        self.cluster.options.update(drives='', address='{host}:9841', path='/srv/{host}/osd.{id}')
        for about in ({}, None):
            self.cluster.about['0'] = about
            self.start_manager()
            self.assertEqual(self.round(), {})
            self.assertEqual(self.round()['PUMICE_DOWN']['detail'],
                             ["osd.0: not asked: 'host' of the option 'path' is not known of this OSD"])
            self.assertEqual(set(self.asked[-1]), {1, 2})

    def test_an_osd_that_a_word_no_longer_names_is_missed(self) -> None:
        self.answers[1] = drive(900)
        self.round()
        self.cluster.options['drives'] = '0=a:1 1 2=c:1'
        self.answers[1] = drive(100)
        self.assertEqual(set(self.round()), {'PUMICE_NEARFULL', 'PUMICE_MODULE'})
        self.assertEqual(set(self.round()), {'PUMICE_NEARFULL', 'PUMICE_MODULE', 'PUMICE_DOWN'})
        self.cluster.options['drives'] = '0=a:1 1=b:1 2=c:1'
        self.assertEqual(self.round(), {})

    def test_a_store_that_is_no_json_is_forgotten(self) -> None:
        self.cluster.store.update(notes='{', damage='x')
        self.start_manager()
        self.assertEqual(self.round(), {})

    def test_status(self) -> None:
        self.answers[1] = drive(960, physical_repackable_bytes=1)
        self.round()
        shown = json.loads(self.manager._status('json').stdout)
        self.assertEqual(shown['done']['told']['1']['state'], 'answered')
        self.assertEqual(set(shown['checks']), {'PUMICE_FULL'})
        self.assertEqual([shown['osds'][1][key] for key in ('physical_repackable_bytes', 'physical_occupied_ratio', 'level')],
                         [1, 0.959, 'full'])
        self.assertIn('osd.1', self.manager._status().stdout)

    def test_acknowledge(self) -> None:
        self.answers[1] = drive(100, uuid='v', errors={'corrupt_records_count': 3})
        self.assertEqual(set(self.round()), {'PUMICE_CORRUPT'})
        self.assertNotEqual(self.manager._acknowledge(7).retval, 0)
        self.assertEqual(self.manager._acknowledge(1).retval, 0)
        self.start_manager()
        self.assertEqual(self.round(), {})

    def test_an_acknowledgement_while_a_round_keeps_what_it_found(self) -> None:
        self.answers[1] = drive(100, uuid='v', errors={'corrupt_records_count': 3})
        acknowledging = threading.Thread(target=lambda: self.manager._acknowledge(1))
        store = self.manager.set_store

        def store_late(key: str, value: str) -> None:
            if acknowledging.ident is None:
                acknowledging.start()
                # It ends here only if it does not wait for the round.
                acknowledging.join(0.5)
            store(key, value)
        with mock.patch.object(self.manager, 'set_store', store_late):
            self.round()
            acknowledging.join(30)
        self.start_manager()
        self.assertEqual(self.round(), {})
