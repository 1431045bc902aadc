"""Tests of `protect`: what is done to a cluster with a full drive, and undone."""

import json
import unittest
from typing import Dict, List, Optional

from pumice.health import Level
from pumice.protect import Action, Done, Reweight, Seen, SetPause, Tell, plan

FULL, BACKFILLFULL, OK = Level.FULL, Level.BACKFILLFULL, Level.OK


class Cluster:
    """OSDs 0 to 2, that do what they are told."""

    def __init__(self) -> None:
        self.up = {0, 1, 2}
        self.weights = {0: 1.0, 1: 1.0, 2: 0.5}
        self.levels: Dict[int, Level] = {}
        self.pause_flag = False
        self.done = Done()

    def seen(self) -> Seen:
        return Seen(set(self.up), dict(self.weights), dict(self.levels), self.pause_flag)

    def round(self, mode: str, levels: Dict[int, Optional[Level]]) -> List[Action]:
        actions = plan(mode, {0: OK, 1: OK, 2: OK, **levels}, self.seen(), self.done, 0.8)
        for action in actions:
            if isinstance(action, SetPause):
                self.pause_flag = action.pause
            elif isinstance(action, Reweight):
                before = self.seen()
                self.weights[action.osd] = action.weight
                self.done.apply(action, before)
                continue
            else:
                self.levels[action.osd] = action.level
            self.done.apply(action, self.seen())
        # The manager restarts after each round.
        self.done = Done(json.loads(json.dumps(self.done.stored())))
        return actions


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
        self.cluster.levels[1] = OK
        self.cluster.up.remove(1)
        self.assertEqual(self.cluster.round('osd-full', {1: FULL}), [])
        self.cluster.up.add(1)
        self.assertEqual(self.cluster.round('osd-full', {1: FULL}), [Tell(1, FULL)])

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
        self.assertEqual(self.cluster.done.weights, {})

    def test_what_is_not_known_changes_nothing(self) -> None:
        for mode in ('osd-full', 'cluster-pause', 'reweight'):
            cluster = Cluster()
            cluster.round(mode, {2: FULL})
            self.assertEqual(cluster.round(mode, {2: None}), [], mode)
            self.assertEqual(len(cluster.round(mode, {})), 1, mode)

    def test_an_osd_that_is_out_or_gone(self) -> None:
        self.cluster.weights[1] = 0.0
        self.assertEqual(self.cluster.round('reweight', {1: FULL, 7: FULL}), [])

    def test_an_osd_that_was_removed_is_forgotten(self) -> None:
        self.cluster.round('reweight', {2: FULL})
        del self.cluster.weights[2]
        self.assertEqual(self.cluster.round('reweight', {2: FULL}), [])
