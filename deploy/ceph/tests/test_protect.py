"""Tests of `protect`: what is done to a cluster with a full drive, and undone."""

import json
import unittest
from typing import Dict, List, Optional, Set

from pumice.health import Level
from pumice.notes import Notes
from pumice.protect import PATIENCE_ROUNDS, Action, Reweight, Seen, SetPause, Tell, plan, succeeded

FULL, BACKFILLFULL, NEARFULL, OK = Level.FULL, Level.BACKFILLFULL, Level.NEARFULL, Level.OK
MODES = ('osd-full', 'cluster-pause', 'reweight')


class Cluster:
    """OSDs 0 to 2, that do what they are told."""

    def __init__(self) -> None:
        self.up_from = {0: 1, 1: 1, 2: 1}
        self.weights = {0: 1.0, 1: 1.0, 2: 0.5}
        self.levels: Dict[int, Level] = {}
        self.pause_flag = False
        self.busy: Set[int] = set()
        self.notes = Notes()

    def seen(self) -> Seen:
        return Seen(dict(self.up_from), dict(self.weights), dict(self.levels), self.pause_flag, frozenset(self.busy))

    def restart_manager(self) -> None:
        self.notes = Notes(json.loads(json.dumps(self.notes.stored())))

    def do(self, action: Action) -> None:
        if isinstance(action, SetPause):
            self.pause_flag = action.pause
        elif isinstance(action, Reweight):
            self.weights[action.osd] = action.weight
        else:
            self.levels[action.osd] = action.level

    def round(self, mode: str, levels: Dict[int, Optional[Level]], ends: str = '') -> List[Action]:
        """The manager restarts after each. `ends`: it ends before or after the actions, and so notes nothing of them."""
        actions = plan(mode, {0: OK, 1: OK, 2: OK, **levels}, self.seen(), self.notes, 0.8)
        self.restart_manager()
        for action in actions:
            if ends != 'before':
                self.do(action)
            if not ends:
                succeeded(action, self.notes)
        self.restart_manager()
        return actions

    def state(self) -> tuple:
        """What an administrator sees."""
        return self.pause_flag, dict(self.weights), {osd for osd, level in self.levels.items() if level == FULL}


class Protect(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = Cluster()

    def test_none(self) -> None:
        self.assertEqual(self.cluster.round('none', {1: FULL}), [])

    def test_an_osd_is_told_that_it_is_full_and_nothing_less(self) -> None:
        cluster = self.cluster
        self.assertEqual(cluster.round('osd-full', {1: BACKFILLFULL}), [], 'it would hide that it is full by its own count')
        self.assertEqual(cluster.round('osd-full', {1: FULL}), [Tell(1, FULL)])
        self.assertEqual(cluster.round('osd-full', {1: FULL}), [])
        self.assertEqual(cluster.round('osd-full', {1: BACKFILLFULL}), [Tell(1, OK)])
        self.assertEqual(cluster.round('osd-full', {}), [])

    def test_an_osd_that_restarted_is_told_again(self) -> None:
        self.cluster.round('osd-full', {1: FULL})
        self.cluster.round('osd-full', {1: FULL})
        self.cluster.levels[1] = OK
        del self.cluster.up_from[1]
        self.assertEqual(self.cluster.round('osd-full', {1: FULL}), [])
        self.cluster.up_from[1] = 2
        self.assertEqual(self.cluster.round('osd-full', {1: FULL}), [Tell(1, FULL)])

    def test_an_osd_that_does_not_show_it_is_told_again_after_a_while(self) -> None:
        told = []
        for _ in range(2 * PATIENCE_ROUNDS + 1):
            told.append(self.cluster.round('osd-full', {1: FULL}))
            self.cluster.levels[1] = OK
        self.assertEqual([at for at, actions in enumerate(told) if actions], [0, PATIENCE_ROUNDS, 2 * PATIENCE_ROUNDS])
        self.assertEqual(self.cluster.notes.overruled(), [])

    def test_an_osd_that_restarted_when_its_drive_was_no_longer_full(self) -> None:
        self.cluster.round('osd-full', {1: FULL})
        self.cluster.up_from[1] = 2
        # An administrator's.
        self.cluster.levels[1] = FULL
        self.assertEqual(self.cluster.round('osd-full', {}), [])
        self.assertEqual(self.cluster.notes.causes(), [])

    def test_an_osd_that_restarted_and_was_then_told_what_it_had_not_answered(self) -> None:
        cluster = self.cluster
        before = cluster.state()
        cluster.round('osd-full', {1: FULL}, 'before')
        cluster.busy, cluster.up_from[1] = {1}, 2
        self.assertEqual(cluster.round('osd-full', {}), [])
        self.assertEqual(cluster.notes.causes(), [1])
        # The command of the first round, sent again.
        cluster.busy, cluster.levels[1] = set(), FULL
        self.assertEqual(cluster.round('osd-full', {}), [Tell(1, OK)])
        self.assertEqual(cluster.state(), before)
        self.assertEqual(cluster.notes.causes(), [])

    def test_an_osd_that_has_not_answered_is_told_nothing_else(self) -> None:
        cluster = self.cluster
        cluster.round('osd-full', {1: FULL}, 'before')
        cluster.busy = {1}
        for level in (FULL, OK, FULL):
            self.assertEqual(cluster.round('osd-full', {1: level}), [])
        cluster.busy = set()
        self.assertEqual(cluster.round('osd-full', {1: FULL}), [Tell(1, FULL)])

    def test_an_osd_that_is_fuller_by_itself_is_left_alone(self) -> None:
        self.cluster.levels[1] = FULL
        self.assertEqual(self.cluster.round('osd-full', {}), [])

    def test_another_mode_undoes_the_first(self) -> None:
        self.cluster.round('osd-full', {1: FULL})
        self.assertEqual(self.cluster.round('cluster-pause', {1: FULL}), [SetPause(True), Tell(1, OK)])
        self.assertEqual(self.cluster.round('none', {1: FULL}), [SetPause(False)])

    def test_cluster_pause(self) -> None:
        self.assertEqual(self.cluster.round('cluster-pause', {1: FULL, 2: FULL}), [SetPause(True)])
        self.assertEqual(self.cluster.round('cluster-pause', {2: FULL}), [])
        self.assertEqual(self.cluster.round('cluster-pause', {2: BACKFILLFULL}), [SetPause(False)])

    def test_a_flag_of_somebody_else_stays(self) -> None:
        self.cluster.pause_flag = True
        self.assertEqual(self.cluster.round('cluster-pause', {1: FULL}), [])
        self.assertEqual(self.cluster.round('cluster-pause', {}), [])

    def test_reweight_once_and_back(self) -> None:
        self.assertEqual(self.cluster.round('reweight', {2: FULL}), [Reweight(2, 0.4)])
        self.assertEqual(self.cluster.round('reweight', {2: FULL}), [])
        self.assertEqual(self.cluster.round('reweight', {2: BACKFILLFULL}), [])
        self.assertEqual(self.cluster.round('reweight', {}), [Reweight(2, 0.5)])
        self.assertEqual(self.cluster.round('reweight', {}), [])

    def test_a_weight_of_somebody_else_stays(self) -> None:
        self.cluster.round('reweight', {2: FULL})
        self.cluster.weights[2] = 0.7
        self.assertEqual(self.cluster.round('reweight', {}), [])
        self.assertEqual(self.cluster.notes.causes(), [])

    def test_what_is_not_known_changes_nothing(self) -> None:
        for mode in MODES:
            cluster = Cluster()
            self.assertEqual(cluster.round(mode, {2: None}), [], mode)
            cluster.round(mode, {2: FULL})
            for _ in range(10):
                self.assertEqual(cluster.round(mode, {2: None}), [], mode)
            self.assertEqual(len(cluster.round(mode, {})), 1, mode)

    def test_another_drive_that_is_not_known_holds_nothing(self) -> None:
        for mode in MODES:
            cluster = Cluster()
            before = cluster.state()
            cluster.round(mode, {2: FULL, 1: None})
            self.assertEqual(len(cluster.round(mode, {2: OK, 1: None})), 1, mode)
            self.assertEqual(cluster.state(), before, mode)

    def test_the_flag_is_held_by_those_that_were_full_under_it(self) -> None:
        cluster = self.cluster
        cluster.round('cluster-pause', {1: FULL})
        cluster.round('cluster-pause', {1: OK, 2: FULL})
        self.assertEqual(cluster.round('cluster-pause', {1: None, 2: None}), [])
        # 2 was removed, 1 had room when it was seen last.
        del cluster.weights[2]
        self.assertEqual(cluster.round('cluster-pause', {1: None, 2: None}), [SetPause(False)])

    def test_an_osd_that_is_not_watched_any_more(self) -> None:
        for mode in MODES:
            cluster = Cluster()
            before = cluster.state()
            cluster.round(mode, {2: FULL})
            for action in plan(mode, {0: OK, 1: OK}, cluster.seen(), cluster.notes, 0.8):
                cluster.do(action)
            self.assertEqual(cluster.state(), before, mode)

    def test_a_manager_that_ends_at_any_time_loses_nothing(self) -> None:
        for mode in MODES:
            for end_of_doing in ('', 'before', 'after'):
                for end_of_undoing in ('', 'before', 'after'):
                    cluster, case = Cluster(), (mode, end_of_doing, end_of_undoing)
                    before = cluster.state()
                    cluster.round(mode, {2: FULL}, end_of_doing)
                    cluster.round(mode, {2: FULL})
                    self.assertNotEqual(cluster.state(), before, case)
                    cluster.round(mode, {}, end_of_undoing)
                    cluster.round(mode, {})
                    self.assertEqual(cluster.state(), before, case)
                    self.assertEqual((cluster.notes.causes(), cluster.notes.overruled()), ([], []), case)

    def test_a_manager_that_ends_and_comes_back_when_nothing_is_full(self) -> None:
        for mode in MODES:
            for ends in ('before', 'after'):
                cluster = Cluster()
                before = cluster.state()
                cluster.round(mode, {2: FULL}, ends)
                cluster.round(mode, {})
                self.assertEqual(cluster.state(), before, (mode, ends))
                self.assertEqual(cluster.round(mode, {}), [], (mode, ends))
                self.assertEqual(cluster.notes.causes(), [], (mode, ends))

    def test_an_action_that_failed_is_repeated(self) -> None:
        for mode in MODES:
            cluster = Cluster()
            first = cluster.round(mode, {2: FULL}, 'before')
            self.assertEqual(cluster.round(mode, {2: FULL}), first, mode)
            undone = cluster.round(mode, {}, 'before')
            self.assertEqual(cluster.round(mode, {}), undone, mode)

    def test_full_again_while_it_is_taken_back(self) -> None:
        for mode in MODES:
            for ends in ('before', 'after'):
                cluster = Cluster()
                cluster.round(mode, {2: FULL})
                protected = cluster.state()
                cluster.round(mode, {2: FULL})
                cluster.round(mode, {}, ends)
                cluster.round(mode, {2: FULL})
                self.assertEqual(cluster.state(), protected, (mode, ends))
                self.assertEqual(cluster.notes.overruled(), [], (mode, ends))

    def test_what_an_administrator_took_back_is_not_set_again_until_the_cause_has_ended_once(self) -> None:
        for mode in MODES:
            cluster = Cluster()
            before = cluster.state()
            action = cluster.round(mode, {2: FULL})
            cluster.round(mode, {2: FULL})
            cluster.pause_flag, cluster.weights[2], cluster.levels = False, 0.5, {}
            for level in (FULL, None, FULL):
                self.assertEqual(cluster.round(mode, {2: level}), [], mode)
                self.assertEqual(len(cluster.notes.overruled()), 1, mode)
            self.assertEqual(cluster.round(mode, {}), [], mode)
            self.assertEqual(cluster.state(), before, mode)
            self.assertEqual(cluster.notes.overruled(), [], mode)
            self.assertEqual(cluster.round(mode, {2: FULL}), action, mode)

    def test_what_an_administrator_set_meanwhile_is_not_taken_back(self) -> None:
        cluster = self.cluster
        cluster.round('cluster-pause', {2: FULL})
        cluster.pause_flag = False
        cluster.round('cluster-pause', {2: FULL})
        cluster.pause_flag = True
        self.assertEqual(cluster.round('cluster-pause', {2: FULL}), [])
        self.assertEqual(cluster.round('cluster-pause', {}), [])
        self.assertTrue(cluster.pause_flag)

        cluster = Cluster()
        cluster.round('reweight', {2: FULL})
        cluster.weights[2] = 0.3
        self.assertEqual(cluster.round('reweight', {2: FULL}), [])
        # Also if it happens to be the module's own.
        cluster.weights[2] = 0.4
        self.assertEqual(cluster.round('reweight', {2: FULL}), [])
        self.assertEqual(cluster.round('reweight', {}), [])

    def test_an_osd_that_was_out_for_a_while_gets_its_weight_back(self) -> None:
        cluster = self.cluster
        cluster.round('reweight', {2: FULL})
        cluster.weights[2] = 0.0
        self.assertEqual(cluster.round('reweight', {2: None}), [])
        self.assertEqual(cluster.round('reweight', {2: OK}), [])
        cluster.weights[2] = 0.4
        self.assertEqual(cluster.round('reweight', {2: OK}), [Reweight(2, 0.5)])

    def test_ceph_rounds_weights(self) -> None:
        self.cluster.round('reweight', {2: FULL})
        self.cluster.weights[2] = 0.399994
        self.assertEqual(self.cluster.round('reweight', {2: FULL}), [])
        self.assertEqual(self.cluster.round('reweight', {}), [Reweight(2, 0.5)])

    def test_an_osd_that_is_out_or_gone(self) -> None:
        self.cluster.weights[1] = 0.0
        self.assertEqual(self.cluster.round('reweight', {1: FULL, 7: FULL}), [])

    def test_an_osd_that_was_removed_is_forgotten(self) -> None:
        self.cluster.round('reweight', {2: FULL})
        del self.cluster.weights[2]
        self.assertEqual(self.cluster.round('reweight', {2: FULL}), [])
