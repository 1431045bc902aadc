//! The drive behind a block device, for udev: from the records of attachments and from the kernel. Asks no
//! server and no bridge, which may hang.

use std::path::{Path, PathBuf};

use host::block::node;
use host::loops::backing_file;
use host::patience;

use super::{loop_device, ublk_device};
use crate::node_kind::NodeKind;
use crate::place::{self, Record};

/// Longest id. It names links: one that is longer, or has other characters than those of UUIDs, is none.
const UUID_BYTES_MAX: usize = 64;

/// Returns the id of the attached drive whose block device has a name, such as `loop0`. Finds it from the
/// moment at which the kernel announces the device.
pub fn drive_of(name: &str) -> Option<String> {
    drive_in(Path::new("/sys"), name, place::all(), ublk_device::is_of)
}

/// `is_of`: whether a ublk device is that of the drive with an id.
fn drive_in(
    sys: &Path,
    name: &str,
    attachments: Vec<(PathBuf, Record)>,
    is_of: impl Fn(&Path, &str) -> bool,
) -> Option<String> {
    let device = sys.join("block").join(name);
    // A bridge has no other device. It records one of loop or nbd after the kernel has announced it.
    let is_its = |folder: &Path, record: &Record, uuid: &str| {
        if name.starts_with("loop") {
            backing_file(&device).ok().flatten().is_some_and(|file| loop_device::is_in(&file, folder))
        } else if name.starts_with("nbd") {
            patience::read(device.join("pid"))
                .is_ok_and(|pid| pid.trim_ascii_end() == record.maker().0.to_string().as_bytes())
        } else {
            let node = node(name);
            record.way == Some(NodeKind::Ublk) && record.node.as_deref() == Some(&*node) && is_of(&node, uuid)
        }
    };
    let found = attachments.into_iter().find_map(|(folder, record)| {
        let uuid = record.identity.as_ref()?.uuid.clone();
        is_its(&folder, &record, &uuid).then_some(uuid)
    });
    let is_safe = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    found.filter(|uuid| !uuid.is_empty() && uuid.len() <= UUID_BYTES_MAX && uuid.bytes().all(is_safe))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::identity::Identity;

    use super::*;

    /// An attachment whose bridge is process 77.
    fn attachment(uuid: &str, at: Option<(&str, NodeKind)>) -> (PathBuf, Record) {
        let identity = Identity { uuid: uuid.to_string(), ..Identity::default() };
        let record = Record {
            node: at.map(|(node, _)| PathBuf::from(node)),
            way: at.map(|(_, way)| way),
            bridge_pid: 77,
            identity: Some(identity),
            ..Record::new(PathBuf::from("/srv/drive"))
        };
        (PathBuf::from("/run/pumice-attach/drive-1"), record)
    }

    #[test]
    fn a_device_is_that_of_the_drive_that_the_kernel_shows() -> std::io::Result<()> {
        let sys = tempfile::tempdir()?;
        let write = |name: &str, text: &str| {
            let path = sys.path().join("block").join(name);
            fs::create_dir_all(path.parent().expect("a folder"))?;
            fs::write(path, text)
        };
        // The record does not name the device yet.
        let uuid =
            |name: &str| drive_in(sys.path(), name, vec![attachment("ab-1", None)], |_, _| unreachable!());
        assert_eq!((uuid("loop3"), uuid("nbd2"), uuid("ublkb4")), (None, None, None));
        write("loop3/loop/backing_file", "/run/pumice-attach/drive-1/file/drive\n")?;
        write("nbd2/pid", "77\n")?;
        assert_eq!((uuid("loop3").as_deref(), uuid("nbd2").as_deref()), (Some("ab-1"), Some("ab-1")));
        for other in ["/run/pumice-attach/drive-12/file/drive", "/srv/drive", "/drive"] {
            write("loop3/loop/backing_file", &format!("{other}\n"))?;
            assert_eq!(uuid("loop3"), None, "{other}");
        }
        write("nbd2/pid", "78\n")?;
        assert_eq!(uuid("nbd2"), None, "of another process");
        Ok(())
    }

    #[test]
    fn a_ublk_device_is_asked_whose_it_is() {
        let uuid = |name: &str, its: &str| {
            let recorded = attachment("ab-1", Some(("/dev/ublkb4", NodeKind::Ublk)));
            drive_in(Path::new("/nonexistent"), name, vec![recorded], |_, uuid| uuid == its)
        };
        assert_eq!(uuid("ublkb4", "ab-1").as_deref(), Some("ab-1"));
        assert_eq!((uuid("ublkb4", "ab-2"), uuid("ublkb5", "ab-1")), (None, None));
    }

    #[test]
    fn what_is_no_id_names_no_link() {
        let long = "a".repeat(UUID_BYTES_MAX + 1);
        for (id, is_good) in [("0a-F", true), ("", false), ("../sda", false), ("a b", false), (&*long, false)]
        {
            let recorded = attachment(id, Some(("/dev/ublkb4", NodeKind::Ublk)));
            let found = drive_in(Path::new("/nonexistent"), "ublkb4", vec![recorded], |_, _| true);
            assert_eq!(found.is_some(), is_good, "{id}");
        }
    }
}
