"""Unit tests of the manager's module, without Ceph: `python3 -m unittest discover -s deploy/ceph -t deploy/ceph`."""

import os
import sys
import types

# What `module` needs of Ceph.
from . import fake_mgr  # noqa: E402

sys.modules['mgr_module'] = fake_mgr  # type: ignore[assignment]
# The package without its __init__, which needs Ceph.
_package = types.ModuleType('pumice')
_package.__path__ = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'mgr', 'pumice')]
sys.modules['pumice'] = _package
