//! `pumice bench --target`: what is no target is wrong usage.

use crate::common::{needs, pumice};

#[test]
fn options_that_a_target_does_not_have_are_wrong_usage() {
    for (target, says) in [
        ("pumice,codec=bogus", "unknown codec \"bogus\": expected auto, lz4"),
        ("named=pumice:/nonexistent/drive,codec=zstd:99", "unknown codec \"zstd:99\""),
        ("pumice,codec=", "unknown codec"),
        ("pumice,level=3", "expected pumice, or pumice,codec=CODEC"),
        ("raw,codec=lz4", "only pumice and pumice:PATH take a codec"),
        ("nbd+unix:///name", "write nbd+unix:///?socket=PATH"),
        ("rbd:pool/image?user=me", "after ? conf=PATH"),
        ("s3+http://127.0.0.1/bucket?size=1", "class=CLASS or conf=PATH"),
        ("nvme-tcp://127.0.0.1", "expected nvme-tcp://HOST/NQN"),
        ("nvme-tcp://127.0.0.1/nqn.a?nsid=0", "expected nsid=N"),
        ("drive", "unknown target"),
    ] {
        let run = pumice(&["bench", "quick", "--target", target]);
        assert!(run.code == Some(2) && run.stdout.is_empty(), "{target}: {run:?}");
        assert!(run.stderr.contains(says) && run.stderr.lines().count() == 1, "{target}: {run:?}");
    }
    let run = pumice(&["bench", "quick", "--target", "a=raw", "--target", "a=pumice"]);
    let says = "pumice: target a: given twice: name one, as NAME=TARGET\n";
    // Without fio that is what is missing.
    if needs(&["fio"]) {
        assert_eq!((run.code, run.stderr.as_str()), (Some(2), says), "{run:?}");
    }
}
