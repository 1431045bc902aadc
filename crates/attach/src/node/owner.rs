//! Whether a node still belongs to its attachment. An administrator can detach its disk (`losetup -d`,
//! `nbd-client -d`) and attach another one. The node, and all names that lead to it, then belong to the other
//! disk.

use std::fs;
use std::path::Path;

use host::loops::backing_file;

use super::loop_device;
use crate::node_kind::NodeKind;
use crate::place::Record;

/// Reason why a node does not belong to its attachment any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// What the node is now, after its path.
    now: String,
    /// The command that may have detached it, if another program must have done that.
    taken_by: Option<&'static str>,
    /// No process uses the node: attaching the drive again disturbs nobody.
    pub(crate) is_free: bool,
}

impl Lost {
    fn free(taken_by: &'static str) -> Lost {
        Lost { now: "is free".to_string(), taken_by: Some(taken_by), is_free: true }
    }

    fn given_away(now: String) -> Lost {
        Lost { now, taken_by: None, is_free: false }
    }

    /// For people. A bridge that has ended loses its node with the last process that closes it.
    pub(crate) fn why(&self, node: &Path, has_bridge: bool) -> String {
        let (node, now) = (node.display(), &self.now);
        match self.taken_by {
            _ if !has_bridge => format!("its bridge process has ended, and {node} {now}"),
            Some(command) => format!("{node} was taken from it (`{command}`?)"),
            None => format!("{node} was taken from it, and {now}"),
        }
    }
}

/// Returns why the node in a record is not the attachment's any more; `None` if it is, or if that cannot be
/// found out. `folder`: that of the attachment.
pub(crate) fn lost(record: &Record, folder: &Path) -> Option<Lost> {
    lost_in(Path::new("/sys"), record, folder)
}

fn lost_in(sys: &Path, record: &Record, folder: &Path) -> Option<Lost> {
    let (node, way) = (record.node.as_deref()?, record.way?);
    let name = node.file_name()?.to_str()?;
    let block = sys.join("block");
    // Without sysfs, nothing is known of devices.
    if !block.exists() {
        return None;
    }
    let device = block.join(name);
    match way {
        NodeKind::Loop => match backing_file(&device) {
            Ok(Some(file)) => (!loop_device::may_be_in(&file, folder))
                .then(|| Lost::given_away(format!("is the device of {} now", status::shown(&file)))),
            Ok(None) => Some(Lost::free("losetup -d")),
            Err(_) => None,
        },
        NodeKind::Nbd => match fs::read_to_string(device.join("pid")) {
            Ok(pid) if pid.trim() == record.maker().0.to_string() => None,
            Ok(pid) => Some(Lost::given_away(format!("is that of process {} now", pid.trim()))),
            Err(_) => Some(Lost::free("nbd-client -d")),
        },
        NodeKind::Ublk => {
            let number = name.strip_prefix("ublkb")?;
            let is_there = sys.join(format!("class/ublk-char/ublkc{number}")).exists();
            (!is_there).then(|| Lost::free("ublk del"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_node_that_was_given_to_something_else_is_not_the_drive_s() -> std::io::Result<()> {
        let sys = tempfile::tempdir()?;
        let folder = Path::new("/run/pumice-attach/drive-1");
        let record = |node: &str, way| Record {
            node: Some(PathBuf::from(node)),
            way: Some(way),
            bridge_pid: 77,
            ..Record::new(PathBuf::from("/srv/drive"))
        };
        let write = |name: &str, text: &str| {
            let path = sys.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder"))?;
            fs::write(path, text)
        };
        let lost = |record: &Record| {
            let node = record.node.clone()?;
            lost_in(sys.path(), record, folder).map(|lost| (lost.is_free, lost.why(&node, true)))
        };
        let (a_loop, nbd) = (record("/dev/loop3", NodeKind::Loop), record("/dev/nbd2", NodeKind::Nbd));
        let ublk = record("/dev/ublkb4", NodeKind::Ublk);
        assert_eq!(lost(&a_loop), None, "there is no sysfs");
        write("block/loop3/size", "0\n")?;
        write("block/nbd2/size", "0\n")?;
        for record in [&a_loop, &nbd, &ublk] {
            let node = record.node.as_deref().expect("a node").display().to_string();
            assert!(lost(record).is_some_and(|(is_free, why)| is_free && why.contains(&node)), "{record:?}");
        }
        write("block/loop3/loop/backing_file", "/run/pumice-attach/drive-1/file/drive\n")?;
        write("block/nbd2/pid", "77\n")?;
        write("class/ublk-char/ublkc4/dev", "1:1\n")?;
        for record in [&a_loop, &nbd, &ublk] {
            assert_eq!(lost(record), None, "{record:?}");
        }
        write("block/loop3/loop/backing_file", "/srv/image\n")?;
        write("block/nbd2/pid", "78\n")?;
        assert!(lost(&a_loop).is_some_and(|(is_free, why)| !is_free && why.contains("/srv/image")));
        assert!(lost(&nbd).is_some_and(|(is_free, why)| !is_free && why.contains("process 78")));
        write("block/loop3/loop/backing_file", "\n")?;
        assert!(lost(&a_loop).is_some_and(|(_, why)| why.contains("losetup -d")), "it has no file");
        let unattended =
            lost_in(sys.path(), &a_loop, folder).map(|lost| lost.why(Path::new("/dev/loop3"), false));
        let ended = "its bridge process has ended, and /dev/loop3 is free";
        assert_eq!(unattended.as_deref(), Some(ended), "nobody has taken it");
        assert_eq!(lost(&Record { node: None, ..a_loop }), None, "it is being made");
        Ok(())
    }

    #[test]
    fn a_loop_device_is_the_drive_s_by_whatever_path_its_file_is_shown() -> std::io::Result<()> {
        let sys = tempfile::tempdir()?;
        let runs = fs::canonicalize(sys.path())?;
        let (real, link) = (runs.join("run/drive-1"), runs.join("drive-link"));
        fs::create_dir_all(&real)?;
        std::os::unix::fs::symlink(&real, &link)?;
        std::os::unix::fs::symlink("run", runs.join("var"))?;
        let device = sys.path().join("block/loop3/loop");
        fs::create_dir_all(&device)?;
        let record = Record {
            node: Some(PathBuf::from("/dev/loop3")),
            way: Some(NodeKind::Loop),
            ..Record::new(PathBuf::from("/srv/drive"))
        };
        let is_lost = |file: &str, folder: &Path| {
            fs::write(device.join("backing_file"), format!("{file}\n"))?;
            std::io::Result::Ok(lost_in(sys.path(), &record, folder).is_some())
        };
        let resolved = real.join("file/drive").display().to_string();
        for folder in [&real, &link, &runs.join("var/drive-1")] {
            assert!(!is_lost(&resolved, folder)?, "{}", folder.display());
            assert!(!is_lost("/drive", folder)?, "unmounted lazily");
            for other in ["/srv/image", "/srv/drive", "/run/drive-2/file/drive"] {
                assert!(is_lost(other, folder)?, "{other}");
            }
        }
        assert!(!is_lost("/host/run/drive-1/file/drive", &real)?, "seen from another root");
        Ok(())
    }
}
